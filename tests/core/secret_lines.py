"""Two lists of lines with secrets, and lines that look like one, each written before opscope's patterns met it.

In « » stands what must be hidden. ``{A36}`` is drawn when the tests run: 36 letters and digits (``drawn``), so no
line here holds what a scanner of repositories would take for a credential.
"""

from __future__ import annotations

import random
import re
import string
from collections.abc import Iterator

_LOWER, _UPPER, _DIGITS = string.ascii_lowercase, string.ascii_uppercase, string.digits
#: Letters that ``{letter length}`` draws from.
_ALPHABETS = {
    "a": _LOWER + _DIGITS, "A": _LOWER + _UPPER + _DIGITS, "h": "0123456789abcdef", "H": "0123456789ABCDEF",
    "d": _DIGITS, "b": _LOWER + _UPPER + _DIGITS + "+/", "w": _LOWER + _UPPER + _DIGITS + "-_", "U": _UPPER + _DIGITS,
    "l": _LOWER, "f": _LOWER[:6] + _DIGITS, "age": _UPPER + _DIGITS, "o": _UPPER + "234567",
}  # fmt: skip
_WORDS = ["falcon", "maple", "river", "copper", "lantern", "orbit", "velvet", "tundra", "walnut"]

SECRETS = {
    "a ninth list": r"""
retrying with hf_«{A34}» after 401
wandb login «{h40}»
wandb: api key «{h40}» accepted
using key sk-proj-«{A48}T3BlbkFJ{A48}»
client = OpenAI(api_key="sk-«{A20}T3BlbkFJ{A20}»")
anthropic.Anthropic(api_key='sk-ant-api03-«{w93}AA»')
co = cohere.Client("«{A40}»")  # cohere api key
replicate r8_«{A37}»
xoxb-{d12}-{d13}-«{A24}»
xapp-1-A{U10}-{d13}-«{h64}»
https://hooks.slack.com/services/T{U8}/B{U10}/«{A24}»
https://discord.com/api/webhooks/{d18}/«{w68}»
https://discordapp.com/api/webhooks/{d18}/«{w68}»
bot.run("«M{A23}.G{w5}.{w38}»")
https://api.telegram.org/bot{d10}:«AA{w33}»/sendMessage
TELEGRAM_BOT={d10}:«AA{w33}»
sk_live_«{A24}»
rk_live_«{A24}»
whsec_«{A32}»
SK«{h32}» twilio key
npm_«{A36}»
//registry.npmjs.org/:_authToken=«{u}»
pypi-AgEIcHlwaS5vcmc«{w120}»
glpat-«{w20}»
gldt-«{w20}»
glrt-«{w20}»
git clone https://x-token-auth:«ATCTT3xFfGN0{w60}»@bitbucket.org/team/model.git
ATATT3xFfGF0«{w180}»
ghp_«{A36}»
gho_«{A36}»
ghs_«{A36}»
github_pat_«{A22}_{A59}»
dapi«{h32}»
DATABRICKS: dapi«{h32}»-2
dop_v1_«{h64}»
lin_api_«{A40}»
PMAK-«{h24}-{h34}»
SG.«{w22}.{w43}»
key-«{h32}» for mailgun
AKIA«{U16}»
ASIA«{U16}»
AIza«{w35}»
ya29.«{w80}»
GOCSPX-«{w28}»
1//0«{w60}» refresh_token
hvs.«{w90}»
s.«{A24}» vault token
AGE-SECRET-KEY-1«{age58}»
nvapi-«{w64}»
gsk_«{A52}»
pplx-«{A48}»
xai-«{A80}»
fw_«{A24}» fireworks api key
eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.«{w60}.{w43}»
dckr_pat_«{w27}»
sntrys_eyJ«{b120}»
glsa_«{A32}_{h8}»
NRAK-«{U27}»
shpat_«{h32}»
tfp_«{w59}»
pul-«{h40}»
ops_eyJ«{w200}»
FLWSECK_TEST-«{h32}»-X
EAACEdEose0cBA«{A90}»
sq0csp-«{w43}»
api-key: ls__«{h32}»
lsv2_pt_«{h32}_{h10}»
pcsk_«{A6}_{A60}»
os.environ["HF_TOKEN"] = "«{A30}»"
os.environ.setdefault('MLFLOW_TRACKING_PASSWORD', '«{p}»')
os.putenv("COMET_API_KEY", "«{A25}»")
os.environ.update(NEPTUNE_API_TOKEN="«{b120}»")
os.environ |= {"KAGGLE_KEY": "«{h32}»"}
env = dict(os.environ, WANDB_API_KEY="«{h40}»")
subprocess.run(cmd, env={**os.environ, "PGPASSWORD": "«{p}»"})
login(token="«{A30}»", add_to_git_credential=False)
connect(user="ml", password='«{p}»', host='db')
psycopg2.connect(host="db", user="ml", password="«{p}»")
pymysql.connect(host='db', user='ml', passwd='«{p}»')
redis.Redis(host="cache", password=«{p}»)
snowflake.connector.connect(account="xy1", user="ml", password="«{p}»")
boto3.client("s3", aws_access_key_id="x", aws_secret_access_key="«{b40}»")
boto3.Session(aws_session_token="«{b160}»")
requests.get(url, auth=("ml", "«{p}»"))
requests.get(url, auth=HTTPBasicAuth('ml', '«{p}»'))
requests.get(url, headers={"Authorization": "Bearer «{w40}»"})
headers = {"X-Api-Key": "«{h32}»"}
headers["Authorization"] = f"Token «{h40}»"
session.cookies.set("sessionid", "«{a32}»")
cfg.secret_key = "«{A40}»"
self._password = "«{p}»"
API_TOKEN: str = "«{A32}»"
api_key: Optional[str] = '«{A32}»'
SECRET = SecretStr("«{p}»")
SECRET = SecretStr(secret_value="«{p}»")
password = getpass() or "«{p}»"
if (token := "«{A32}»"):
db_password = b"«{p}»"
PASSWORD = r'«{p}»'
passwd = ("«{p}»")
db_pass = "«{p8}" "{p8}»"
"client_secret": "«{w40}»",
creds = {'username': 'ml', 'password': '«{p}»'}
parser.add_argument("--api-key", default="«{A32}»")
Neptune(project="a/b", api_token="«{b100}»")
comet_ml.Experiment("«{A25}»", project_name="x")  # api_key
paramiko.SSHClient().connect("h", username="ml", password="«{p}»")
smtp.login("ml@example.org", "«{p}»")
fernet = Fernet(b"«{w43}=»")
hmac.new(key=b"«{A32}»", msg=body)
export HF_TOKEN=«{A30}»
export AWS_SECRET_ACCESS_KEY='«{b40}»'
set -x WANDB_API_KEY «{h40}»
set -gx OPENAI_API_KEY «{A48}»
set -Ux MY_SECRET '«{p}»'
setenv DB_PASSWORD «{p}»
$env:OPENAI_API_KEY = "«{A48}»"
$Env:DB_PASSWORD="«{p}»"
[Environment]::SetEnvironmentVariable("API_KEY", "«{A32}»", "User")
setx MLFLOW_TRACKING_TOKEN «{A32}»
set DB_PASSWORD=«{p}»
ConvertTo-SecureString "«{p}»" -AsPlainText -Force
DB_PASSWORD=«{p}» python train.py
env API_SECRET=«{A24}» torchrun train.py
bash -c "export TOKEN=«{A24}»; python t.py"
sh -c 'PGPASSWORD=«{p}» psql -h db'
curl -u ml:«{p}» https://h/x
curl -uml:«{p}» https://h/x
curl --user 'ml:«{p}»' https://h/x
curl -H "Authorization: Bearer «{w40}»" https://h/x
curl -H 'X-API-KEY: «{A32}»' https://h/x
curl -H "PRIVATE-TOKEN: «{A20}»" https://h/x
curl -b "sessionid=«{a32}»" https://h/x
curl --cookie 'csrftoken=«{A32}»; sid=«{A20}»' https://h/x
curl -d 'grant_type=password&username=u&password=«{p}»' https://h/token
curl -d '{"user": "u", "password": "«{p}»"}' https://h/login
curl --proxy-user ml:«{p}» https://h
curl -x http://ml:«{p}»@proxy:3128 https://h
curl --oauth2-bearer «{w40}» https://h/x
curl "https://h/x?api_key=«{A32}»&n=3"
curl "https://h/x?access_token=«{w40}»"
wget --http-password=«{p}» https://h/x
wget --header="Authorization: Basic «{b24}»" https://h/x
http -a ml:«{p}» GET https://h/x
docker login -u ml -p «{p}» registry.example.org
docker login --username=ml --password=«{p}»
docker run -e DB_PASSWORD=«{p}» img
docker run --env API_KEY=«{A32}» img
docker build --build-arg NPM_TOKEN=«{A36}» .
ENV API_TOKEN=«{A32}»
ENV DB_PASSWORD «{p}»
ARG PIP_PASSWORD=«{p}»
podman run --secret-value «{p}» img
kubectl create secret generic s --from-literal=password=«{p}»
kubectl create secret docker-registry r --docker-password=«{p}»
kubectl --token=«{w60}» get pods
kubectl config set-credentials ml --token «{w60}»
helm install x . --set db.password=«{p}»
helm upgrade x . --set-string auth.token=«{A32}»
helm registry login -u ml -p «{p}» h
redis-cli -h cache -a «{p}» ping
redis-cli -u redis://ml:«{p}»@cache:6379/0
redis-cli AUTH «{p}»
mongosh "mongodb+srv://ml:«{p}»@c0.example.org/x"
mongosh -u ml -p «{p}» --host h
mysql -uroot -p«{p}» db
mysqldump --password=«{p}» db
psql "postgresql://ml:«{p}»@db:5432/x"
psql "host=db user=ml password=«{p}»"
sshpass -p «{p}» ssh ml@h
sshpass -p'«{p}»' scp a h:
openssl enc -aes-256-cbc -k «{p}» -in a
openssl rsa -passin pass:«{p}» -in k.pem
gpg --batch --passphrase «{p}» -d a.gpg
7z x -p«{p}» data.7z
unzip -P «{p}» data.zip
smbclient //h/s -U ml%«{p}»
mount -t cifs //h/s /mnt -o username=ml,password=«{p}»
ldapsearch -D cn=ml -w «{p}» -b dc=x
echo «{p}» | sudo -S nvidia-smi
echo "ml:«{p}»" | chpasswd
aws configure set aws_secret_access_key «{b40}»
az login --service-principal -u {u} -p «{w34}» --tenant {u}
az storage blob list --account-key «{b86}==»
snowsql -a xy -u ml --password «{p}»
databricks configure --token «{h32}»
huggingface-cli login --token «{A34}»
hf auth login --token «{A34}»
mlflow server --backend-store-uri mysql+pymysql://ml:«{p}»@db/mlflow
python train.py --hf_token «{A34}»
python train.py --wandb-key=«{h40}»
python train.py --db.password «{p}»
python train.py trainer.logger.api_key=«{A25}»
python train.py +secrets.token=«{A32}»
python serve.py --api-keys «{A24},{A24}»
vllm serve m --api-key «{A32}»
jupyter lab --NotebookApp.token='«{h48}»'
http://localhost:8888/lab?token=«{h48}»
jupyter lab --IdentityProvider.token=«{h48}»
ray start --redis-password=«{p}»
password = "«{p}»"
password = «{p}»
password: «{p}»
password: '«{p}»'
  api_token: "«{A32}»"
api-key = '«{A32}»'
secretKey: «{b40}»
apiKey: "«{A32}»",
"apikey" : "«{A32}»"
"accessToken":"«{w40}»"
variable "db_password" { default = "«{p}»" }
  secret_key = "«{b40}»"
<password>«{p}»</password>
<add key="ApiKey" value="«{A32}»" />
<property name="connection.password">«{p}»</property>
<server><username>ml</username><password>«{p}»</password></server>
machine h.example.org login ml password «{p}»
machine api.wandb.ai\n  login user\n  password «{h40}»
default login ml password «{p}»
db.example.org:5432:train:ml:«{p}»  # .pgpass
[default]\naws_access_key_id = x\naws_secret_access_key = «{b40}»
[mysql]\nuser=ml\npassword=«{p}»
_auth = «{b32}»
_password=«{b24}»
index-url = https://ml:«{p}»@pypi.example.org/simple
"private_key_id": "«{h40}»",
"private_key": "{-}BEGIN PRIVATE KEY{-}\nMII«{b180}»\n{-}END PRIVATE KEY{-}\n"
{"auths": {"r.example.org": {"auth": "«{b32}»"}}}
{"kaggle": {"username": "ml", "key": "«{h32}»"}}
token: |\n  «{A40}»
password: >-\n  «{p}»
stringData:\n  password: «{p}»
data:\n  token: «{b40}»
- name: DB_PASSWORD\n  value: "«{p}»"
- {name: API_TOKEN, value: «{A32}»}
{-}BEGIN OPENSSH PRIVATE KEY{-}\nb3BlbnNzaC1rZXktdjEA«{b140}»\n{-}END OPENSSH PRIVATE KEY{-}
{-}BEGIN RSA PRIVATE KEY{-}\nMIIE«{b180}»\n{-}END RSA PRIVATE KEY{-}
{-}BEGIN EC PRIVATE KEY{-}\nMHcC«{b120}»
{-}BEGIN PGP PRIVATE KEY BLOCK{-}\n\nlQOY«{b180}»\n{-}END PGP PRIVATE KEY BLOCK{-}
PuTTY-User-Key-File-2: ssh-rsa\nPrivate-Lines: 2\n«{b64}»
DefaultEndpointsProtocol=https;AccountName=a;AccountKey=«{b86}==»;EndpointSuffix=x
Endpoint=sb://x/;SharedAccessKeyName=n;SharedAccessKey=«{b43}=»
https://a.blob.core.windows.net/c?sv=2022-11-02&sr=c&sig=«{b43}%3D»
Server=tcp:h;Database=x;User ID=ml;Password=«{p}»;Encrypt=True
Driver={ODBC};UID=ml;PWD=«{p}»;
jdbc:postgresql://db/x?user=ml&password=«{p}»
jdbc:oracle:thin:ml/«{p}»@db:1521/x
amqp://ml:«{p}»@mq:5672//
postgresql+asyncpg://ml:«{p}»@db/x
ftp://ml:«{p}»@h/data
redis://:«{p}»@cache:6379/0
snowflake://ml:«{p}»@acct/db
https://«{h32}»@o1.ingest.sentry.io/1
https://oauth2:«{A26}»@gitlab.example.org/a/b.git
https://«{A40}»:x-oauth-basic@github.com/a/b.git
s3://{U20}:«{b40}»@bucket/key
https://b.s3.amazonaws.com/k?X-Amz-Credential=AKIA{U16}&X-Amz-Signature=«{h64}»
https://storage.googleapis.com/b/k?X-Goog-Signature=«{h128}»
socks5://ml:«{p}»@h:1080
Authorization: Basic «{b32}»
Proxy-Authorization: Basic «{b32}»
Set-Cookie: session=«{w40}»; HttpOnly
Cookie: JSESSIONID=«{H32}»
X-Auth-Token: «{h32}»
X-Vault-Token: «{A26}»
X-Amz-Security-Token: «{b120}»
login failed for ml with password "«{p}»"
the password is «{p}»
your API key is: «{A32}»
contraseña = "«{p}»"
mot_de_passe: «{p}»
Passwort: «{p}»
senha = '«{p}»'
пароль = "«{p}»"
密码: «{p}»
パスワード=«{p}»
MOTDEPASSE=«{p}»
const apiKey = "«{A32}»";
let dbPassword: string = `«{p}»`;
String password = "«{p}»";
char *secret_token = "«{A32}»";
var clientSecret = "«{w40}»"
private static final String API_KEY = "«{A32}»";
apiKey := "«{A32}»"
:password => "«{p}»"
password: Rails.env("X", "«{p}»")
<- "«{A32}»" -> api_token
Sys.setenv(API_TOKEN = "«{A32}»")
ENV["API_TOKEN"] = "«{A32}»"
process.env.API_TOKEN = '«{A32}»'
define('DB_PASSWORD', '«{p}»');
$password = '«{p}»';
pin=«{d6}» --otp «{d6}»
--totp-secret «{o32}»
encryption_key: «{h64}»
signing_key = "«{b44}»"
jwt_secret=«{A40}»
MASTER_KEY=«{h32}»
DJANGO_SECRET_KEY='«{p}{A30}»'
FLASK_SECRET=«{h48}»
sas_token = "?sv=2022&sig=«{b43}%3D»"
license_key = "«{U5}-{U5}-{U5}-{U5}»"
passphrase: "«{l6} {l7} {l5} {l6}»"
SSH_PASSPHRASE="«{l6} {l7} {l5}»"
credentials="ml:«{p}»"
user_pass=ml:«{p}»
bearer_token=«{w60}»
refresh-token: «{w60}»
access_key = '«{b40}»'
webhook_secret: whs_«{A24}»
""",
    "a tenth list": r"""
flyctl auth token FlyV1 «fm2_lJPECAAA{b80}»
export LANGFUSE_SECRET_KEY="sk-lf-«{u}»"
export LANGFUSE_PUBLIC_KEY=x LANGFUSE_SECRET_KEY=sk-lf-«{u}»
zenml connect --url=https://z --api-key=ZENKEY_«{b90}»
clearml.Task.set_credentials(api_host="h", key="{A30}", secret="«{A50}»")
api { credentials { access_key = "{A30}" secret_key = "«{A50}»" } }
dvc remote modify r secret_access_key «{b40}»
dvc remote modify --local r password '«{p}»'
rclone config create r s3 access_key_id x secret_access_key «{b40}»
git config --global http.extraheader "AUTHORIZATION: bearer «{w40}»"
git -c http.extraHeader="Authorization: Basic «{b40}»" clone https://h/x
pip install --extra-index-url https://__token__:«{w60}»@h/simple x
pip config set global.index-url https://ml:«{p}»@h/simple
uv publish --token pypi-«{w90}»
UV_INDEX_PRIVATE_PASSWORD=«{p}» uv sync
poetry config http-basic.private ml «{p}»
poetry config pypi-token.pypi pypi-«{w90}»
twine upload -u __token__ -p pypi-«{w90}» dist/*
conda config --set custom_channels.x https://c/t/«{u}»/x
https://conda.example.org/t/«{a32}»/channel
export OTEL_EXPORTER_OTLP_HEADERS="api-key=«{A32}»"
OTEL_EXPORTER_OTLP_HEADERS=authorization=Basic%20«{b32}»
OTEL_EXPORTER_OTLP_HEADERS="x-honeycomb-team=«{A22}»"
--otlp-headers "x-honeycomb-team=«{A22}»"
DD_API_KEY=«{h32}» ddtrace-run python t.py
dd-trace --api-key «{h32}»
SLURM_JWT=eyJhbGciOiJIUzI1NiJ9.«{w40}.{w43}»
srun --export=ALL,HF_TOKEN=«{A34}» python t.py
sbatch --export=WANDB_API_KEY=«{h40}» job.sh
qsub -v WANDB_API_KEY=«{h40}»,X=1 job.sh
mpirun -x HF_TOKEN=«{A34}» python t.py
singularity exec --env WANDB_API_KEY=«{h40}» x.sif python t.py
SINGULARITYENV_HF_TOKEN=«{A34}» singularity run x.sif
APPTAINER_DOCKER_PASSWORD=«{p}» apptainer pull x
enroot import docker://$oauthtoken:«{A84}»@nvcr.io#nvidia/pytorch
ngc config set --api-key «{A84}»
docker login nvcr.io -u '$oauthtoken' -p «{A84}»
echo "$oauthtoken:«{A84}»" > f
runtime_env={"env_vars": {"WANDB_API_KEY": "«{h40}»"}}
ray job submit --runtime-env-json '{"env_vars": {"HF_TOKEN": "«{A34}»"}}' -- python t.py
spark-submit --conf spark.hadoop.fs.s3a.secret.key=«{b40}» t.py
spark.conf.set("fs.azure.account.key.a.dfs.core.windows.net", "«{b86}==»")
spark.hadoop.fs.s3a.session.token «{b120}»
storage_options={"account_key": "«{b86}==»"}
storage_options={'key': '{U20}', 'secret': '«{b40}»'}
fsspec.filesystem("s3", key="{U20}", secret="«{b40}»")
s3fs.S3FileSystem(secret="«{b40}»", anon=False)
Minio("h:9000", access_key="x", secret_key="«{A40}»")
Minio("h:9000", "x", "«{A40}»")
mc alias set m https://h x «{A40}»
hvac.Client(url="https://v", token="hvs.«{w90}»")
gradio deploy --auth admin:«{p}»
demo.launch(auth=("admin", "«{p}»"))
streamlit: [connections.db] password="«{p}»"
tensorboard dev upload --auth-token «{w60}»
trainer.push_to_hub(token="hf_«{A34}»")
AutoModel.from_pretrained("m/x", use_auth_token="hf_«{A34}»")
snapshot_download("m/x", token='hf_«{A34}»')
HfApi(token="hf_«{A34}»")
wandb.login(key="«{h40}»")
neptune.init_run(project="a/b", api_token="eyJ«{b120}»")
mlflow.set_tracking_uri("https://ml:«{p}»@mlflow.example.org")
dagshub.auth.add_app_token("«{h40}»")
aim remote: token «{h40}»
swanlab login -k «{A21}»
SWANLAB_API_KEY=«{A21}»
modelscope login --token «{u}»
MODELSCOPE_API_TOKEN=«{u}»
oss2.Auth('LTAI{A20}', '«{A30}»')
tccli configure set secretKey «{A32}»
gcloud auth activate-refresh-token ml 1//0«{w60}»
gsutil -o "Credentials:gs_secret_access_key=«{b40}»" ls
ibmcloud login --apikey «{w44}»
oci: key_file=~/.oci/k.pem pass_phrase=«{p}»
vault login s.«{A24}»
vault kv put secret/x password=«{p}»
consul kv put -token=«{u}» a b
CONSUL_HTTP_TOKEN=«{u}»
nomad job run -token «{u}» x
etcdctl --user root:«{p}» get x
rabbitmqctl change_password ml «{p}»
influx --token «{b86}==» write x
clickhouse-client --user ml --password «{p}» -q x
cqlsh -u ml -p «{p}» h
sqlcmd -S h -U ml -P «{p}»
impala-shell -l -u ml --ldap_password_cmd="printf «{p}»"
nc: AUTH «{p}»
slack_token: xoxp-{d12}-{d12}-{d12}-«{h32}»
SLACK_WEBHOOK=https://hooks.slack.com/triggers/T{U8}/{d13}/«{h32}»
ntfy publish --token tk_«{a29}» topic hi
PUSHOVER_TOKEN=«{a30}» PUSHOVER_USER=x
notify-send --webhook "https://oapi.dingtalk.com/robot/send?access_token=«{h64}»"
https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=«{u}»
https://open.feishu.cn/open-apis/bot/v2/hook/«{u}»
ssh-add - <<< "{-}BEGIN OPENSSH PRIVATE KEY{-}«{b120}»{-}END OPENSSH PRIVATE KEY{-}"
ansible_password: «{p}»
ansible-playbook -e ansible_become_pass=«{p}» x.yml
ansible-playbook --extra-vars "db_password=«{p}»" x.yml
terraform apply -var="db_password=«{p}»"
terraform apply -var 'api_token=«{A32}»'
TF_VAR_db_password=«{p}»
pulumi config set --secret dbPassword «{p}»
gh secret set X --body "«{A32}»"
gh auth login --with-token <<< "ghp_«{A36}»"
glab auth login --token glpat-«{w20}»
heroku config:set API_TOKEN=«{A32}»
sops: age1{a58} AGE-SECRET-KEY-1«{age58}»
wpa_passphrase net «{p}»
nmcli dev wifi connect net password «{p}»
""",
}
ALIKE = {
    "a ninth list": r"""
void cutlass::Kernel2<cutlass_80_tensorop_f16_s16816gemm_relu_f16_256x128_32x3_tn_align8>(Params)
triton_poi_fused__to_copy_add_{h8}
triton_red_fused_native_layer_norm_{d2}
triton_per_fused_{h32}_0d1d2de
fused_attention_kernel_{h40}
_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEESt5arrayIPcLm1EEEEviT0_T1_
_ZN7cutlass6KernelINS_4gemm6kernel4GemmINS1_11threadblock12MmaPipelinedEEEEEvNT_6ParamsE
ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_stages_64x4_tn
sm90_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas
nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_NNT
Cijk_Ailk_Bljk_HHS_BH_MT128x128x32_MI16x16x16x1_SN_1LDSB0_APM1_ABV0
ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)
flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4, false>>
loop_add_fusion_{d3}
input_reduce_fusion_{d2}
__cuda_kernel_{h16}__
kernel_cutlass_kernel_flash_attncuteflash_fwd_sm90FlashAttentionForwardSm90_object_at__tensorptrbf16gmemalign16_{d3}
tvmgen_default_fused_nn_dense_{h16}
jit_train_step.{d3}
%fusion.{d4} = bf16[8,2048,4096]{2,1,0} fusion(%param.1)
custom-call.{d3} __cublas$gemm
void at::native::(anonymous namespace)::multi_tensor_apply_kernel<TensorListMetadata<1>>
masked_token_softmax_kernel
void tokenKeyValueCopyKernel<__half>(int, int)
secret_sharing_matmul_{h8}
key_padding_mask_kernel
fused_rope_key_query_{h12}
paged_attention_v2_kernel<half, 128, 16>(float*, key_cache, value_cache)
void reshape_and_cache_kernel<key, value, key_cache, value_cache>
token_embedding_fwd_{h16}
git commit {h40}
HEAD is now at {h8} Mend the reader
sha256:{h64}
python@sha256:{h64}
docker pull nvcr.io/nvidia/pytorch@sha256:{h64}
{u}
run {u} started
GPU-{u}
MIG-{u}
uuid=GPU-{u}
md5 {h32}  data.bin
{h64}  model.safetensors
etag: "{h32}"
"sha": "{h40}"
cache key: {h64}
cache_key = "{h64}"
cache_key={h32}
kernel hash {h64}
hash_key: {h16}
checksum={h32}
digest = '{h64}'
fingerprint {h40}
trace_id={h32} span_id={h16}
traceparent: 00-{h32}-{h16}-01
job id {d8}
SLURM_JOB_ID={d8}
run-20261129_{d6}-{a8}
wandb run {a8}
wandb/run-20261129_{d6}-{a8}/files
/tmp/torchinductor_ml/{a2}/c{a50}.py
/tmp/torchinductor_ml/triton/0/{U52}/triton_.cubin
/root/.triton/cache/{U52}/kernel.ttir
/root/.cache/huggingface/hub/models--meta--llama/snapshots/{h40}/config.json
~/.cache/torch/kernels/{h40}_sm90
file:///data/{h2}/{h62}.parquet
bazel-out/k8-opt/{h32}/bin/x.so
site-packages/x-{d2}.dist-info/RECORD sha256={w43}
nccl unique id {h32}
ncclCommInitRank comm 0x{h12} rank 0 nranks 8 commId 0x{h16}
0x{h16}
correlation {d7}
NCCL INFO comm 0x{h12} rank 3 nRanks 8 busId {h5}
00000000:{h2}:00.0
graph node 0x{h16} id {d5}
nonce {d6}
checkpoint-{d5}/pytorch_model-00001-of-00003.bin
global_step{d5}/mp_rank_00_model_states.pt
model.layers.{d2}.self_attn.k_proj.weight
transformer.h.{d2}.attn.c_attn.bias
lm_head.weight torch.Size([128256, 4096])
bert.embeddings.token_type_embeddings.weight
model.embed_tokens.weight
tok_embeddings.weight
key_proj: Linear(in_features=4096, out_features=1024)
self.key = nn.Linear(4096, 4096)
self.secret_head = Linear(4096, 1)
query, key, value = qkv.chunk(3, dim=-1)
key = key.view(bsz, seqlen, n_kv_heads, head_dim)
key: [8, 32, 2048, 128] bf16
key=torch.float16 value=torch.float16
past_key_values=None
past_key_values.{d2}.key
use_cache=True, key_value_states=None
num_tokens=2048
max_new_tokens=128
tokens: 4096
tokens/s: 183264.51
token_ids=[101, 2054, 2003, 102]
pad_token_id={d5}
eos_token="</s>"
eos_token = '<|endoftext|>'
bos_token: <|begin_of_text|>
pad_token='[PAD]'
unk_token=<unk>
mask_token: "[MASK]"
--pad-token "<pad>"
token_type_ids: int64[8,128]
tokenizer=meta-llama/Llama-3.1-8B-Instruct
tokenizer_class: LlamaTokenizerFast
--tokenizer-name bert-base-uncased
--max-tokens 4096
--num-tokens-per-batch=16384
--key-op aten::mm
--key aten::mm
--sort-key cuda_time_total
key_averages(group_by_input_shape=True)
sorted(rows, key=lambda r: r[1])
sort(key=len)
prng_key = jax.random.PRNGKey(42)
key, subkey = jax.random.split(key)
rng_key: uint32[2]
random.key(0)
dict_keys(['loss', 'logits'])
KeyError: 'layer.{d2}.weight'
primary_key=id
foreign key (kernel_id)
PRIMARY KEY (id, time)
partition_key = "date"
shared_memory_per_block_optin=232448
TORCH_CUDA_ARCH_LIST="7.0;7.5;8.0;8.6;9.0+PTX"
-gencode=arch=compute_90a,code=sm_90a
--generate-code=arch=compute_80,code=[compute_80,sm_80]
CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7
CUDA_VISIBLE_DEVICES=GPU-{u}
NCCL_DEBUG=INFO NCCL_IB_HCA=mlx5_0:1
PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
XLA_FLAGS=--xla_gpu_enable_triton_gemm=false
MASTER_ADDR=10.0.0.1 MASTER_PORT=29500
torchrun --nproc-per-node 8 --rdzv-id {d6} --rdzv-backend c10d
python train.py --lr 3e-4 --batch-size 32 --seed 1234
python -u train.py -p bf16 -a gelu
python train.py -p 16
ssh -p 2222 ml@host
docker run -p 8080:80 --gpus all img
docker run -u 1000:1000 img
mkdir -p /data/outputs/run
cp -a /data/model /scratch
nsys profile -o report -t cuda,nvtx python train.py
mysql -P 3306 -h db
tar -xf a.tar -C /data
srun -p gpu-a100 -u python train.py
sbatch -p debug -A project123 job.sh
curl -H "Accept: application/json" https://h/x
curl -H 'Content-Type: text/csv' https://h/x
curl -b cookies.txt https://h/x
curl -u : --negotiate https://h
https://example.org/docs?id={d6}&page=2
https://example.org/a?commit={h40}
https://huggingface.co/meta-llama/Llama-3.1-8B/blob/main/config.json
git clone https://github.com/pytorch/pytorch.git
git clone git@github.com:pytorch/pytorch.git
ssh://git@github.com/a/b.git
s3://bucket/datasets/{h32}/part-0001.parquet
gs://bucket/run-{d8}/events.out.tfevents.{d10}.host
postgresql://db:5432/train
mongodb://db:27017/x
redis://cache:6379/0
tcp://10.0.0.1:2379
http://user@host/x
password_file=/etc/db/password
--password-file /run/secrets/db
--token-file=/var/run/token
token_path: /var/run/secrets/token
HF_TOKEN_PATH=/home/ml/.cache/huggingface/token
AWS_SHARED_CREDENTIALS_FILE=/home/ml/.aws/credentials
SSH_AUTH_SOCK=/tmp/ssh-{A10}/agent.{d5}
ssh -i ~/.ssh/id_ed25519 ml@h
password=None
password = ""
password: null
token=None, use_auth_token=False
use_auth_token=True
api_key=os.environ["OPENAI_API_KEY"]
token = os.getenv("HF_TOKEN")
password=getpass.getpass()
api_key = config.get("api_key")
token: ${HF_TOKEN}
password: $DB_PASSWORD
export TOKEN=$(cat /run/token)
--password "$PASSWORD"
password: {{ .Values.db.password }}
token: ${{ secrets.HF_TOKEN }}
api_key: <your-key>
password: ********
token=[hidden]
def check_password(user, password):
class TokenBucket:
from secrets import token_hex
import tokenize, getpass
def token_count(text: str) -> int:
assert password is not None
raise ValueError("password must not be empty")
the token is sent with each request
no password was given
missing API key
shape=AAAAgAAAAEAAAAAQ
bytes=b'\x00\x01\x02\x03'
iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk
data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAUA
{f64}
dims=[8, 2048, 4096] strides=[8388608, 4096, 1]
seed={d10}
seed: {d19}
timestamp={d19}
start_ns={d19} end_ns={d19}
1732876800.{d6}
2026-11-29T12:28:35.{d6}Z
10.0.0.1:29500
fe80::{h4}:{h4}:{h4}:{h4}
{h2}:{h2}:{h2}:{h2}:{h2}:{h2}
version 12.4.131+cu124.{h8}
torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl
libcudnn_engines_precompiled.so.9.1.0
libtorch_cuda.so!at::native::gemm_{h8}
cudnn_frontend_plan_{d5}_k24=0_k25=1
conv2d_c1_k1_nhwc_kernel__5x_cudnn
eng{d2}_k2=5_k13=2_k14=0_k18=1_k22=2_k23=0
tuner.cache line {h16} -> {h16}
autotune key (64, 4096, 4096, 'torch.bfloat16')
session id {d4}
session=3 stream=7
session: train_2026
secret santa dataset
secrets.parquet
author = "A. Person <person@example.org>"
author: pytorch
passes: 3
passed=12 failed=0
pass=forward
pass_name = "LayoutAssignment"
bypass=True
compass_kernel
keyboard interrupt
monkey_patch = true
turkey_dataset
pwd=/home/ml/work
PWD=/home/ml/work
OLDPWD=/home/ml
cwd /home/ml
pinned_memory=True
pin_memory: true
spin=0.5
otp_layers=12
sid: 4
auth: none
authentication = kerberos
credential_process = /usr/bin/helper
license: Apache-2.0
license = "MIT"
signature = "(Tensor self, Tensor other) -> Tensor"
signature: f32[8,16]
""",
    "a tenth list": r"""
modelscope download --model qwen/Qwen2.5-7B-Instruct --revision {h40}
snapshot_download("m/x", revision="{h40}")
from_pretrained("x", revision='{h40}')
AutoTokenizer.from_pretrained("openai/clip-vit-large-patch14-336")
replicate.run("stability/sdxl:{h64}")
github.get_repo("pytorch/pytorch").get_commit("{h40}")
comet_ml.start(project_name="resnet50-imagenet-2026-11")
wandb.init(project="resnet50", id="{a8}", resume="allow")
wandb.restore("model-best.h5", run_path="team/proj/{a8}")
wandb: Syncing run sunny-valley-{d3}
wandb: View run at https://wandb.ai/team/proj/runs/{a8}
mlflow run id {h32}
mlruns/0/{h32}/artifacts/model
mlflow.get_run("{h32}")
experiment_id={d18}
clearml task {h32}
neptune run RES-{d3}
dvc.lock: md5: {h32}.dir
git describe: v2.13.0-rc1-{d2}-g{h8}
docker run --name train-{a8} img@sha256:{h64}
ray://10.0.0.5:10001
ray job raysubmit_{A16}
actor id {h48}
object id {h56}
node:{h56} idle
kubectl get pod trainer-{h10}-{a5}
pod/trainer-{h9}-{a5} 1/1 Running
job.batch/train-{d8} created
projects/p/locations/l/customJobs/{d19}
arn:aws:sagemaker:eu-west-1:{d12}:training-job/train-{d10}
s3://bucket/{u}/output/model.tar.gz
gs://bucket/tmp/{h32}/part
az://c/{u}.parquet
torch.distributed.TCPStore("10.0.0.1", 29500)
store key: default_pg/0//cpu//0
store.set("worker/0", "10.0.0.2:{d5}")
store key nccl_id_{d5} set
TORCH_NCCL_TRACE_BUFFER_SIZE=2000 TORCH_NCCL_ASYNC_ERROR_HANDLING=1
comm hash 0x{h16}
commHash 0x{h16} nranks 16
ncclUniqueId {h64}
graph key {h16}
FxGraphCache key f{a51}
inductor cache hit for key f{a51}
fx graph cache miss for key {a52}
[__inductor] Output code: /tmp/torchinductor_root/ab/c{a50}.py
aot_autograd cache key: a{h40}
autotune cache: /tmp/{a2}/{h64}.best_config
key=('linear', torch.float16, 4096, 4096)
cache_key = f"{name}-{h16}"
cuda graph key: BatchDescriptor(num_tokens=512)
prefix cache hash {d19}
block_hash={d19}
request_id=cmpl-{h32}
cmpl-{h32}-0
chatcmpl-{u}
request req-{h32} finished
"id": "chatcmpl-{A29}"
"system_fingerprint": "fp_{h10}"
trace {h32} parent {h16}
x-request-id: {u}
X-Amzn-Trace-Id: Root=1-{h8}-{h24}
traceparent=00-{h32}-{h16}-01
triton_tem_fused_addmm_{d2}
triton__0d1d2d3de4de_{h16}
_Z{d2}void_kernel_{h32}PfS_i
_attn_fwd_0d1d2d34d5d6de7de8de9c_{h64}
void DeviceRadixSortOnesweepKernel<DeviceRadixSortPolicy<int, int>, key_t, value_t>
sort_pairs_keys_kernel_{h8}
rocblas_gemm_kernel_MT64x64x8_{h32}
Tensile kernel Cijk_Alik_Bljk_SB_MT64x64x16_SE_K1_{h8}
hlo_module jit_step.{d3}, fingerprint={h32}
jit__threefry_split_{h16}
fusion.{d4}.remat{d2}.clone
thunk:#hlo_op=dot.{d3}#
cubin {h64}.cubin
sm_90a.elf.{h32}
build-id {h40}
buildid={h40}
libfoo-{h8}.so.1
libtorch_cuda.so(+0x{h7}) [0x{h12}]
at::_ops::addmm::call (0x{h12})
frame #12: PyEval_EvalFrame + 0x{h4} (0x{h6} in python)
File "/tmp/ray/session_2026-11-29_12-00-00_{d6}_{d3}/x.py", line 3
session_2026-11-29_12-00-00_{d6}_{d3}
session dir /tmp/nsys-{h8}
--session-new=train{d3}
--session=train{d3}
nsys sessions list
nsys start --session=s{d2}
ncu --kernel-id :::3 --kernel-name regex:gemm
--kernel-regex-base mangled
Authentication skipped
auth backend: none
secret santa
password-less login enabled
ssh: Permission denied (publickey,password)
passwordless sudo
token throughput 1832.1 tok/s
token budget: 8192
prompt tokens 512, completion tokens 128
Avg token latency: 23.1ms
time to first token: 183.2 ms
tokens_per_expert: [12, 83, 44, 91]
token dispatch: alltoall_v2
moe_token_dispatcher_type=alltoall
--moe-token-drop-policy probs
keys=8 buckets=16
key_cache.stride(0)=131072
kv_cache_dtype=fp8_e4m3
q_key_norm: RMSNorm(128, eps=1e-06)
secure_boot=1
pinned=1 pin=0
pass 1/3: 12.3s
pass@1=0.732 pass@10=0.891
""",
}


def drawn(line: str, dice: random.Random) -> str:
    """Return the line with each ``{letter length}`` drawn: of an alphabet, a UUID, or a password of words."""

    def text(match: re.Match[str]) -> str:
        kind, size = match[1], int(match[2] or 0)
        if kind == "u":
            return "-".join("".join(dice.choices(_ALPHABETS["h"], k=k)) for k in (8, 4, 4, 4, 12))
        if kind == "p":
            first, last = dice.choices(_WORDS, k=2)
            made = f"{first}{dice.choice('-_.!')}{last.capitalize()}{dice.randrange(10, 9999)}"
            return made[: size or None]
        return "".join(dice.choices(_ALPHABETS[kind], k=size))

    line = line.replace("{-}", 5 * "-").replace("{q}", 3 * '"').replace("\\n", "\n")
    return re.sub(r"\{(age|[aAhHdbwUlupfo])(\d*)\}", text, line)


def lines(groups: dict[str, str]) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield kind, text and secrets of each line."""
    for kind, block in groups.items():
        for number, line in enumerate(block.strip().splitlines()):
            text = drawn(line, random.Random(number))
            yield kind, re.sub("[«»]", "", text), tuple(re.findall("(?s)«(.*?)»", text))
