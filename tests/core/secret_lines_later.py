"""Three more lists of lines with secrets, and of lines that look like one, each written before the patterns met it.

The signs are those of ``secret_lines``, which draws the values.
"""

from __future__ import annotations

SECRETS = {
    "an eleventh list": r"""
Server=tcp:sql7.corp.net,1433;Database=runs;User ID=trainer;Password=«Brass-Monkey-88»;Encrypt=True;
jdbc:postgresql://db.internal:5432/metrics?user=loader&password=«w4lrusTango»&ssl=true
jdbc:sqlserver://mssql:1433;databaseName=ml;user=sa;password={«Tricky9pass»};encrypt=false
jdbc:oracle:thin:scott/«tigerlily7»@//orahost:1521/ORCL
jdbc:mysql://root:«ballast-42»@mysql:3306/features
jdbc:snowflake://acme.snowflakecomputing.com/?user=svc&password=«Icefloe2025»&warehouse=WH
jdbc:redshift://cl.abc.redshift.amazonaws.com:5439/dev;UID=awsuser;PWD=«Marmot_991»
mongodb+srv://worker:«c0balt.fern»@cluster0.mongodb.net/runs?retryWrites=true
redis://:«{A20}»@cache:6379/0
rediss://default:«{h32}»@us1.upstash.io:6379
amqp://celery:«quillpen»@mq:5672//
postgresql+psycopg2://ml:«Pa%24%24w0rd»@pg/ml
host=pg port=5432 dbname=ml user=ml password='«kelp forest»' sslmode=prefer
Driver={ODBC Driver 18 for SQL Server};Server=x;Uid=me;Pwd=«Ostrich#12»;
DefaultEndpointsProtocol=https;AccountName=mlstore;AccountKey=«{b86}==»;EndpointSuffix=core.windows.net
Endpoint=sb://bus.servicebus.windows.net/;SharedAccessKeyName=Root;SharedAccessKey=«{b43}=»
HostName=hub.azure-devices.net;DeviceId=cam1;SharedAccessKey=«{b43}=»
AccountEndpoint=https://c.documents.azure.com:443/;AccountKey=«{b86}==»;
Data Source=orcl;User Id=hr;Password=«hr_2024_pw»;
snowflake://svc_user:«Glacier.5»@acct/db/schema?warehouse=wh
clickhouse://default:«sandpiper»@ch:9000/logs
nats://svc:«halibut9»@nats:4222
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="svc" password="«kafk4esque»";
mssql+pyodbc://sa:«Yukon(1)»@host/db?driver=ODBC+Driver+17
oracle+cx_oracle://system:«oracle_pw1»@host/?service_name=XE
bolt://neo4j:«graphpaper»@neo:7687
Server=myServer;Port=5432;User Id=me;Password="«semi;colon»";Pooling=true
user=trainer;pwd=«abc-123-xyz»;server=z
s3://{o20}:«{A40}»@minio:9000/bucket
mqtt://sensor:«dragonfly»@broker
sftp://backup:«ferry%40boat»@nas/models
couchbase://Administrator:«sofa-bed»@cb1,cb2
smb://CORP;me:«fileshare8»@nas/data
elasticsearch: hosts=["https://elastic:«{A20}»@es:9200"]
//registry.example.org/:_authToken=«{w36}»
//npm.corp/:_password=«{b24}»
_auth=«{b28}==»
//npm.pkg.github.com/:_authToken=«ghp_{A36}»
[pypi]\nusername = __token__\npassword = «pypi-AgEIcHlwaS5vcmc{w120}»
[global]\nindex-url = https://bot:«wheelhouse»@pypi.corp/simple
{"auths":{"https://index.docker.io/v1/":{"auth":"«{b28}»"}}}
{"auths": {"ghcr.io": {"username": "me", "password": "«crate-and-barrel»"}}}
{"auths":{"reg.azurecr.io":{"identitytoken":"«{w60}»"}}}
users:\n- name: admin\n  user:\n    token: «{w40}»
users:\n- name: kubernetes-admin\n  user:\n    client-key-data: «LS0tLS1CRUdJTiBSU0EgUFJJVkFURSBLRVktLS0tLQo{b120}»
machine api.wandb.ai\n  login user\n  password «{h40}»
db.corp:5432:ml:trainer:«pgpa55-orchid»
[default]\naws_access_key_id = AKIA{o16}\naws_secret_access_key = «{b40}»
aws_session_token = «{b200}»
[client]\nuser=root\npassword=«mariner»
https://me:«ghp_{A36}»@github.com
<server><id>nexus</id><username>deploy</username><password>«artifacts4me»</password></server>
signing.keyPassword=«gradle-bee»
nexusPassword=«nexus.2020»
admin:«$apr1$Zu8fPq2T$S6n9s8C4n5bFhF6WJHd8w1»
root:«$6$pYx1Qm8R$z2b8hQ0e5o8V3YpXQ2d9uFqYQ5bQk8hL4m6c7v1n2s3D4f5G6h7J8k9L0qWeRtYuIoPaSdFgHjKlZxCvB»:19000:0:99999:7:::
network={\n  ssid="lab"\n  psk="«blue-kettle-77»"\n}
secret_key = «{A40}»
[remote]\ntype = sftp\nuser = me\npass = «{w30}»
{"github-oauth": {"github.com": "«{h40}»"}}
<add key="ClearTextPassword" value="«nugget55»" />
credentials "app.terraform.io" {\n  token = "«{A14}.atlasv1.{A67}»"\n}
[registry]\ntoken = "«cio{A32}»"
---\n:rubygems_api_key: rubygems_«{h48}»
{"username":"kgl","key":"«{h32}»"}
github.com:\n    user: me\n    oauth_token: «gho_{A36}»
c.NotebookApp.token = '«{h48}»'
c.ServerApp.password = u'argon2:«$argon2id$v=19$m=10240,t=10,p=8$Rk9hQmNkRWZn$Zm9vYmFyYmF6cXV4cXV1eA»'
ansible_become_pass: «be-come-root»
node1 ansible_host=10.0.0.4 ansible_ssh_pass=«sshhhh9»
requirepass «rediskeeper»
masterauth «replica-word»
default_pass = «bunnyhop»
fernet_key = «{w43}=»
SECRET_KEY = 'django-insecure-«{w50}»'
secret_key_base: «{h128}»
APP_KEY=base64:«{b43}=»
[DEFAULT]\nhost = https://adb-1.azuredatabricks.net\ntoken = «dapi{h32}»
channels:\n  - https://conda.corp/t/«tk-{h8}-{h12}»/main
dev:\n  type: postgres\n  user: dbt\n  pass: «warehouse-Mouse»
[comet]\napi_key=«{A25}»
keystore.password=«changeit2»
spring.datasource.password=«boot&spur»
curl -u admin:«crowbar7» https://artifactory.corp/api
curl --user 'me:«two words»' http://x
curl -sSL -umonitor:«icicle» http://grafana:3000/api
wget --http-password=«lemonade» --http-user=me http://x/data.tar
wget --user=me --password «gooseberry» ftp://x
curl -H "PRIVATE-TOKEN: «glpat-{w20}»" https://gitlab.corp/api/v4/projects
curl -x http://me:«pr0xyword»@proxy:3128 https://x
curl --proxy-user me:«walnut» https://x
curl -d '{"user":"me","password":"«jsonbody1»"}' https://x/login
curl --data-urlencode "password=«form&body»" https://x
curl -b 'session=«{A32}»' https://x
http -a me:«pieplate» GET https://x
mysql -uroot -p«gingham» -e 'select 1'
mysqldump --user=root --password=«dumptruck» ml > ml.sql
sshpass -p «peppercorn» ssh me@host
sshpass -p'«pep corn»' scp x me@host:
psql "postgresql://me:«elephant»@pg/ml"
PGPASSWORD=«elephants» psql -U me -h pg
redis-cli -h cache -a «redcurrant» ping
redis-cli --pass «redcurrants» ping
mongosh --username me --password «mangos» --host m
mongodump -u me -p «mango-tree» --db ml
ldapsearch -x -D cn=admin,dc=ex,dc=org -w «cedarwood» -b dc=ex
openssl enc -aes-256-cbc -k «saltshaker» -in x -out y
openssl rsa -in key.pem -passin pass:«opensesame» -out plain.pem
gpg --batch --passphrase «maple-syrup» -d x.gpg
zip -P «zipperlip» out.zip model.pt
7z x -p«sevenup» data.7z
unzip -P «unzipped» data.zip
docker login -u me -p «shipyard» reg.corp
echo «harbour-seal» | docker login -u me --password-stdin reg.corp
helm registry login reg.corp -u me -p «helmet77»
kubectl create secret generic db --from-literal=password=«steerage»
kubectl --token=«{w40}» get pods
az login --service-principal -u app -p «{w34}» --tenant t
aws configure set aws_secret_access_key «{b40}»
gcloud auth activate --password «cumulus»
wandb login «{h40}»
huggingface-cli login --token «hf_{A34}»
hf auth login --token=«hf_{A34}»
svn checkout --username me --password «subvert» http://svn
smbclient //nas/share -U me%«sambadance»
mount -t cifs //nas/x /mnt -o username=me,password=«cifsword»
bash -c 'export API_KEY=«{h32}»; python train.py'
sh -c "mysql -h db -p«innershell» < x.sql"
ssh host 'DB_PASS=«remotely» python train.py'
sudo -S <<< '«sudoku99»' nvidia-smi -pl 300
echo '«sudoku88»' | sudo -S nvidia-smi
python train.py --pin «4711» --otp «829113»
python serve.py --auth me:«porcupine»
vault login «hvs.{w90}»
vault kv put secret/db password=«vaulted»
net user trainer «N3tUser!» /add
htpasswd -b .htpasswd me «htwordpass»
keytool -genkey -storepass «keystore1» -keypass «keypass22»
java -Djavax.net.ssl.keyStorePassword=«jksword» -jar x.jar
ffmpeg -i rtsp://admin:«camera12»@cam/stream out.mp4
git clone https://oauth2:«glpat-{w20}»@gitlab.corp/ml.git
pip install --index-url https://__token__:«{A32}»@pypi.corp/simple pkg
twine upload -u me -p «twinebox» dist/*
git -c http.extraHeader="Authorization: Basic «{b32}»" fetch
ipmitool -H bmc -U root -P «calvin77» power status
snmpget -v3 -u me -A «authphrase» -X «privphrase» host
sqlcmd -S host -U sa -P «SqlCmd!9» -Q 'select 1'
bcp db.t out f -U sa -P«Bulk99»
sqlplus system/«Manager123»@//localhost/XEPDB1
etcdctl --user root:«etcetera» get x
influx -username me -password «influenza»
mosquitto_pub -u me -P «mosquito» -t x -m y
restic --password-command 'echo «restful1»' backup
Authorization: Bearer «{w48}»
authorization: token «{h40}»
Authorization: Basic «{b32}==»
Proxy-Authorization: Basic «{b24}»
headers={"Authorization": "Bearer «{w40}»"}
headers = {'authorization': f'Token «{h40}»'}
"Authorization": "ApiKey «{b60}==»"
Authorization: Digest username="me", realm="x", nonce="n", uri="/", response="«{h32}»"
Authorization: AWS4-HMAC-SHA256 Credential=AKIA{o16}/20250101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=«{h64}»
Authorization: AWS AKIA{o16}:«{b27}=»
Authorization: Negotiate «YII{b160}»
Authorization: NTLM «TlRMTVNTUAAD{b80}»
Authorization: Hawk id="dh37", ts="1353832234", nonce="j4h3g2", mac="«{b43}=»"
Authorization: GoogleLogin auth=«{w120}»
Authorization: SharedKey account:«{b43}=»
Authorization: Key «{h32}»
x-api-key: «{A40}»
X-Auth-Token: «{h32}»
X-Vault-Token: «hvs.{w24}»
Ocp-Apim-Subscription-Key: «{h32}»
api-key: «{h32}»
X-Amz-Security-Token: «{b120}»
Set-Cookie: sessionid=«{a32}»; HttpOnly; Path=/
Cookie: csrftoken=«{A64}»; lang=en
Cookie: JSESSIONID=«{H32}»
Cookie: _xsrf=2|«{h8}|{h32}»|1700000000
Cookie: connect.sid=s%3A«{w32}.{b43}»
Cookie: laravel_session=«eyJ{b120}»
Cookie: PHPSESSID=«{a26}»
- name: Authorization\n  value: Bearer «{w40}»
session.headers["X-API-KEY"] = "«{A36}»"
requests.get(url, auth=("me", "«tupleware»"))
auth = HTTPBasicAuth('me', '«basicauth9»')
metadata=[("authorization", "Bearer «{w44}»")]
req.add_header('Authorization', 'Basic «{b28}»')
export WANDB_API_KEY=«{h40}»
set -gx OPENAI_API_KEY «sk-proj-{w74}T3BlbkFJ{w74}»
set -x DB_PASSWORD '«fishmonger»'
$env:HF_TOKEN = "«hf_{A34}»"
$Env:DbPassword='«pwshell»'
[Environment]::SetEnvironmentVariable("API_SECRET", "«powerhouse»", "User")
setx NGC_API_KEY «{b84}»
set MLFLOW_TRACKING_PASSWORD=«mlflowers»
set "AZURE_CLIENT_SECRET=«{w37}»"
setenv MYSQL_PWD «cshore»
declare -x GITHUB_TOKEN="«ghs_{A36}»"
env SMTP_PASS=«envelope» python train.py
docker run -e POSTGRES_PASSWORD=«container1» postgres
docker run --env=MYSQL_ROOT_PASSWORD=«whaleroot» mysql
ENV REDIS_PASSWORD=«dockerfile8»
ENV REDIS_PASSWORD «dockerfile9»
ARG NPM_TOKEN=«npm_{A36}»
srun --export=ALL,DB_PW=«slurmish» python train.py
mpirun -x SECRET_TOKEN=«mpirate» -np 8 python t.py
singularity exec --env PASSWORD=«singlet9» img.sif python
Environment="DB_PASSWORD=«systemdee»"
      - RABBITMQ_DEFAULT_PASS=«composer5»
- name: DB_PASSWORD\n  value: "«k8svalue»"
      POSTGRES_PASSWORD: «yamlish»
New-Object PSCredential("me", (ConvertTo-SecureString "«Secure5tring»" -AsPlainText -Force))
typeset -x APIKEY=«{h32}»
ROOTPW=«toor-toor» ./install.sh
COMET_API_KEY="«{A25}»" NEPTUNE_API_TOKEN="«eyJhcGlfYWRkcmVzcyI6{b100}==»" python train.py
{-}BEGIN RSA PRIVATE KEY{-}\n«{b64}\n{b64}\n{b32}»\n{-}END RSA PRIVATE KEY{-}
{-}BEGIN OPENSSH PRIVATE KEY{-}\n«b3BlbnNzaC1rZXktdjEAAAAA{b46}\n{b70}»\n{-}END OPENSSH PRIVATE KEY{-}
"private_key": "{-}BEGIN PRIVATE KEY{-}\n«{b64}\n{b64}»\n{-}END PRIVATE KEY{-}\n"
{-}BEGIN PGP PRIVATE KEY BLOCK{-}\n\n«{b64}\n{b64}»\n{-}END PGP PRIVATE KEY BLOCK{-}
{-}BEGIN ENCRYPTED PRIVATE KEY{-}\n«{b64}\n{b64}»
PuTTY-User-Key-File-3: ssh-ed25519\nEncryption: none\nPrivate-Lines: 1\n«{b64}»\nPrivate-MAC: {h64}
[Interface]\nPrivateKey = «{b43}=»\nAddress = 10.0.0.2/32
AGE-SECRET-KEY-1«{age58}»
{-}BEGIN EC PRIVATE KEY{-}\r\n«{b64}\r\n{b64}»\r\n{-}END EC PRIVATE KEY{-}
{"kty":"EC","crv":"P-256","x":"f83OJ3D2","y":"x_FEzRu9","d":"«{w43}»"}
PresharedKey = «{b43}=»
anthropic.Anthropic(api_key="«sk-ant-api03-{w93}AA»")
«sk-ant-admin01-{w93}AA»
openai.api_key = "«sk-{A20}T3BlbkFJ{A20}»"
«AIza{w35}»
«xoxb-{d12}-{d12}-{A24}»
https://hooks.slack.com/services/«T{U8}/B{U8}/{A24}»
https://discord.com/api/webhooks/{d18}/«{w68}»
«glpat-{w20}»
«github_pat_{A22}_{A59}»
«ghu_{A36}»
«sk_live_{A24}»
«rk_live_{A24}»
«SG.{w22}.{w43}»
«key-{h32}» mailgun
«SK{h32}» twilio key
«npm_{A36}»
«pypi-AgEIcHlwaS5vcmc{w150}»
«dop_v1_{h64}»
«shpat_{h32}»
«EAACEdEose0cBA{A80}»
«ya29.{w120}»
«eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJ{A20}.{w43}»
«hvb.{w140}»
«{A14}.atlasv1.{w64}»
«dapi{h32}-2»
«lin_api_{A40}»
«ntn_{d11}{A35}»
«secret_{A43}»
«PMAK-{h24}-{h34}»
«figd_{w40}»
«tskey-auth-{A12}CNTRL-{A32}»
«r8_{A37}» replicate
«gsk_{A52}» groq
«xai-{A80}»
«nvapi-{w64}»
«pplx-{A48}»
«hf_{A34}»
«api_org_{A34}»
«glsa_{A32}_{h8}»
«glc_eyJ{b100}»
«NRAK-{U27}»
«sntrys_eyJ{b100}_{w43}»
«dp.pt.{A43}»
«pul-{h40}»
«CFPAT-{w43}»
«ATATT3xFfGF0{w170}»
«EZAK{A54}»
«phc_{A43}» «phx_{A43}»
«sbp_{h40}»
«pscale_pw_{w43}»
«ops_eyJ{b260}»
«rpa_{U46}» runpod
«AKCp{A69}»
«LTAI{A20}»
«AKID{A32}»
«oy2{a43}»
«dckr_pat_{w27}»
token=«tok_{h24}»
«sq0csp-{w43}»
«fo1_{w43}»
«wandb_v1_{A80}»
«vercel_blob_rw_{A16}_{A32}»
«glrt-{w20}»
«AQ.Ab8RN6{w44}»
«ABSK{b128}»
«fw_{A22}» fireworks
«pcsk_{A5}_{A63}»
«lsv2_pt_{h32}_{h10}»
«sk-or-v1-{h64}»
«tvly-{A32}»
«jina_{A60}»
Passwort: «Sonnenschein»
kennwort=«Regenbogen9»
mot_de_passe = "«coquelicot»"
motdepasse=«tournesol»
contraseña: «mariposa»
--clave «guitarra7»
senha=«borboleta»
parola_d_ordine = '«farfalla»'
wachtwoord: «vlinder12»
lösenord = "«fjäril»"
adgangskode=«sommerfugl»
salasana: «perhonen»
hasło: «motylek5»
heslo=«motylik»
jelszó: «pillangó»
şifre = "«kelebek»"
пароль: «бабочка5»
ПАРОЛЬ=«Strekoza7»
κωδικός: «petalouda»
密码：«hudie2025»
密碼=«hudie2026»
パスワード: «chocho88»
暗証番号=«9041»
비밀번호: «nabi1234»
mật_khẩu = "«conbuom»"
كلمة المرور: «farasha9»
סיסמה=«parpar77»
पासवर्ड: «titli555»
kata_sandi=«kupukupu»
รหัสผ่าน: «phisuea1»
--geheim «Schmetterling»
секрет=«Zagadka9»
api_key = "«{h32}»"
self._password = '«underscored»'
dbPassword = "«camelbase»"
DB_PASSWORD: str = "«annotated»"
DB_PASSWORD: Final[str] = "«finalized»"
if (token := "«walrushide»"):
password = {q}«triplet-quote»{q}
password = ("«parenthes»")
password = b"«bytesize»"
password = rb'«rawbytes»'
password = f"«fstringy»{suffix}"
password = "«firsthalf»" "«secondhalf»"
password = "«plusleft»" + "«plusright»"
password = (\n    "«linedup»"\n    "«linetwo»"\n)
connect(host="db", user="me", password="«kwargish»")
dict(user="me", passwd="«dictcall»")
{"user": "me", "pwd": "«dictlit»"}
config["database"]["password"] = "«subscript»"
os.environ["API_TOKEN"] = "«environs»"
os.environ.setdefault("SECRET", "«sunflower1»")
os.putenv("DB_PASS", "«putenvy»")
os.environ.update(PASSWORD="«updated1»")
os.environ.update({"PASSWORD": "«updated2»"})
os.environ |= {"HF_TOKEN": "«merged99»"}
os.getenv("DB_PASSWORD", "«defaultpw»")
os.environ.get("API_KEY", default="«{A24}»")
parser.add_argument("--password", default="«argdefault»")
parser.add_argument('--api-key', type=str, required=False, default='«{h32}»', help='key')
@click.option("--token", default="«clickety»")
password: SecretStr = SecretStr("«pydantic1»")
token: str = Field(default="«fielded1»")
token: str = field(default="«fielded2»")
def connect(user, password="«paramdef»", port=1):
lambda password='«lambdapw»': login(password)
setattr(cfg, "password", "«setattred»")
monkeypatch.setenv("API_KEY", "«monkeyed»")
login(user, password='«quo\'ted»')
wandb.login(key="«{h40}»")
huggingface_hub.login("«hf_{A34}»")
boto3.client("s3", aws_access_key_id="AKIA{o16}", aws_secret_access_key="«{b40}»")
client = Client(api_secret='«{A32}»')
hmac.new(b"«hmackey-long»", msg, hashlib.sha256)
jwt.encode(payload, "«jwtsign-word»", algorithm="HS256")
Fernet(b"«{w43}=»")
paramiko.SSHClient().connect("h", username="u", password="«paramour»")
smtp.login("me@x.org", "«smtplogin»")
keyring.set_password("svc", "me", "«keyringer»")
PASSWORDS = ["«listed-one»", "«listed-two»"]
credentials = ("me", "«credtuple»")
user, password = "me", "«unpacked»"
token = base64.b64decode("«{b40}»")
assert password == "«compared»"
create_engine(URL.create("postgresql", "me", password="«urlcreate»"))
print(f"{password=}")  # password='«debugged»'
Config(db=Db(password="«nestedcall»"))
redis.Redis(host='h', password='«redispy»')
app.config.update(SECRET_KEY="«flasky-word»")
app.secret_key = b'«_5#y2L"F4Q8z»'
hvac.Client(token='«hvactoken»')
mlflow.set_tracking_uri("https://me:«trackurl»@mlflow.corp")
@dataclass\nclass C:\n    password: str = "«cornflower»"
match = {"access_token": '«{w40}»', 'refresh_token': '«{w40}»'}
Namespace(lr=0.1, api_key='«goldfinch7»', epochs=3)
{'apiKey': '«{A32}»', "clientSecret": "«{A32}»"}
const password = "«constant1»";
let apiKey = `«{A32}»`;
process.env.SECRET = '«nodejs99»'
std::string password = "«cplusplus»";
#define WIFI_PASSWORD "«arduino8»"
private static final String PASSWORD = "«javafinal»";
var password string = "«golanger»"
let password: &str = "«rustacean»";
password := "«gopher77»"
$password = '«phpuser»';
define('DB_PASSWORD', '«wordpress1»');
"password" => "«hashrocket»"
password: '«rubysym»',
<password>«xmlelement»</password>
<user name="me" password="«xmlattr»"/>
<add key="apiKey" value="«{A32}»"/>
<property name="hibernate.connection.password">«winterly»</property>
<property name="password" value="«springbean»"/>
<entry key="db.password">«entrykey»</entry>
<wsse:Password Type="PasswordText">«soapword»</wsse:Password>
<password><![CDATA[«cdataword»]]></password>
[db]\npassword = «iniword» ; comment
password = "«tomlword»" # comment
db = { user = "me", password = "«inlinetoml»" }
variable "db_password" {\n  default = "«hclword»"\n}
password: |\n  «blockscalar»
password: >-\n  «foldedscalar»
- {name: db, password: «flowmap»}
stringData:\n  password: «stringdata»
data:\n  password: «{b24}»
CREATE USER trainer WITH PASSWORD '«sqlword»';
ALTER USER 'root'@'localhost' IDENTIFIED BY '«identified»';
SET PASSWORD FOR 'me'@'%' = PASSWORD('«setpass9»');
GRANT ALL ON ml.* TO me IDENTIFIED BY '«grantword»'
CREATE SECRET (TYPE s3, KEY_ID 'AKIA{o16}', SECRET '«{b40}»');
username: me / password: «slashlogin»
The password is «tellinghim»
Password for me: «promptword»
your one-time code is «482913»
user=me&password=«formword»&submit=1
{\"password\": \"«escaped-json»\"}
"password":"«with\"quote»"
db.password=«properties»
--set auth.rootPassword=«helmset»
//-- password=«commented»
https://api.x.org/v1/run?api_key=«{h32}»&limit=5
https://x.org/cb#access_token=«{w40}»&token_type=bearer
https://bucket.s3.amazonaws.com/m.pt?X-Amz-Credential=AKIA{o16}&X-Amz-Signature=«{h64}»
https://acct.blob.core.windows.net/c/m.pt?sv=2022-11-02&sp=r&sig=«{b43}%3D»
https://storage.googleapis.com/b/o?GoogleAccessId=x&Expires=1&Signature=«{b80}»
https://x.org/reset?token=«{w32}»
https://me:«urlword1»@x.org/path
https://«{h40}»@github.com/org/repo.git
https://x-access-token:«ghs_{A36}»@github.com/o/r
https://hub:8888/lab?token=«{h48}»
https://x.org/login?user=me&pwd=«urlquery»
wss://x.org/socket?auth=«{w40}»
https://«{h32}»@o123.ingest.sentry.io/456
https://outlook.office.com/webhook/«{h8}-{h4}-{h4}-{h4}-{h12}»@{h8}-{h4}-{h4}-{h4}-{h12}/IncomingWebhook/«{h32}»/{h8}-{h4}-{h4}-{h4}-{h12}
https://api.telegram.org/bot«{d10}:AA{w33}»/sendMessage
https://maps.googleapis.com/maps/api?key=«AIza{w35}»
https://x.org/?code=«{w40}»&state=abc
otpauth://totp/me?secret=«{o32}»&issuer=x
https://user%40corp.org:«p%23hash»@x.org
https://x.org/a?jwt=«eyJhbGciOiJIUzI1NiJ9.eyJ{A30}.{w43}»
https://x.org/download;jsessionid=«{H32}»?file=1
s3a://AKIA{o16}:«{A40}»@bucket/x
""",
    "a twelfth list": r"""
borg create --encryption=repokey ssh://me@nas/./repo::x; BORG_PASSPHRASE=«attic-lamp»
RESTIC_PASSWORD=«coldstore» restic backup /data
ansible all -i hosts -e "ansible_sudo_pass=«sudoers-den»" -m ping
ansible-vault encrypt_string '«vault-string-1»' --name db_password
docker secret create db_pw - <<< «dockersecret»
docker compose run -e "AWS_SECRET_ACCESS_KEY=«{b40}»" train
docker build --build-arg HTTP_PROXY=http://me:«pr0xy-me»@proxy:8080 .
docker build --build-arg GIT_TOKEN=«{h40}» -t x .
podman login --username me --password=«podwhale» quay.io
crane auth login -u me -p «craneword» ghcr.io
skopeo copy --src-creds me:«skopeople» docker://a docker://b
buildah login -u me -p «buildmore» quay.io
argocd login argo.corp --username admin --password «argonaut1»
flux bootstrap git --password=«fluxword»
helm upgrade x y --set-string postgresql.auth.postgresPassword=«helmsman»
kubectl config set-credentials me --password=«kubernaut»
kubectl config set-credentials me --token «{w40}»
kubectl create secret docker-registry r --docker-password=«dockerhub9» --docker-username=me
kubectl create secret generic s --from-literal=apikey=«{A24}»
oc login https://ocp -u kubeadmin -p «{A5}-{A5}-{A5}-{A5}»
oc login --token=sha256~«{w43}»
minikube config set registry_password «tinycube7»
terraform plan -var db_password=«terraces»
TF_VAR_api_token=«{A32}» terraform apply
pulumi config set --secret dbPassword «pulumian7»
packer build -var 'ssh_password=«packersaid»' x.json
vagrant cloud auth login --token «{A14}.atlasv1.{A60}»
gh secret set TOKEN --body «{h40}»
gh auth login --with-token <<< «ghp_{A36}»
glab auth login --token «glpat-{w20}»
git remote add o https://me:«{h40}»@git.corp/x
hub clone https://«ghp_{A36}»:x-oauth-basic@github.com/o/r
dvc remote modify s3 secret_access_key «{b40}»
dvc remote modify --local myremote password «dvcloud»
rclone config create r sftp host=h user=me pass=«rcloned9»
rclone --sftp-pass «{w24}» copy a r:b
s3cmd --access_key=AKIA{o16} --secret_key=«{b40}» ls
mc config host add m http://minio {o20} «{A40}»
aws s3 cp x s3://b --sse-c-key «{b43}=»
azcopy copy x "https://a.blob.core.windows.net/c?sv=2021&sig=«{b43}%3D»"
az storage blob upload --account-key «{b86}==»
gsutil -o Credentials:gs_secret_access_key=«{b40}» ls
lftp -u me,«lftpword» ftp.x.org
ncftpput -u me -p «ncftpword» h / f
sshfs -o password_stdin me@h:/ /mnt <<< «sshfsword»
expect -c 'spawn ssh me@h; expect "assword:"; send "«expected1»\r"'
plink -pw «plinkword» me@host
xfreerdp /v:h /u:me /p:«remotely7»
vncviewer -passwd «vncpass8» h
mysql --defaults-extra-file=<(printf '[client]\npassword=«printfed»') ml
mysqladmin -u root password '«adminpass2»'
psql "host=h user=me password=«conninfo3»"
createuser --pwprompt me; psql -c "ALTER ROLE me PASSWORD '«alterrole»'"
mongo "mongodb://me:«mongol1an»@h/ml?authSource=admin"
cqlsh -u me -p «cassandra9»
snowsql -a acct -u me --authenticator x -p «snowball4»
bq query --credential_file x "SELECT 1"; export BQ_PASSWORD=«bigquery2»
kinit me <<< «kerberos5»
echo «kerberos6» | kinit me
java -cp x Main --jdbc.password=«mainjava1»
spark-submit --conf spark.hadoop.fs.s3a.secret.key=«{b40}» x.py
hadoop fs -D fs.azure.account.key.acct.blob.core.windows.net=«{b86}==» -ls /
flink run -Dsecurity.ssl.rest.key-password=«flinkword» x.jar
kafka-console-consumer --consumer-property sasl.jaas.config='... ScramLoginModule required username="me" password="«scramble»";'
airflow connections add pg --conn-password «airflown»
airflow users create --username a --password «airflows» --role Admin
superset fab create-admin --password «bigset12»
jupyter lab --NotebookApp.token='«jupyter-tok-7»'
jupyter notebook --ServerApp.password='«sha1:{h12}:{h40}»'
jupyter lab --IdentityProvider.token=«{h32}»
tensorboard dev upload --api_key «AIza{w35}»
ngrok config add-authtoken «{A27}_{A21}»
ngrok http 8080 --basic-auth "me:«ngrokken»"
cloudflared tunnel run --token «eyJhIjoi{b120}»
tailscale up --authkey «tskey-auth-{A12}CNTRL-{A32}»
wg set wg0 private-key <(echo «{b43}=»)
clearml-init --key {U20} --secret «{A50}»
comet upload --api-key «{A25}» x.zip
neptune login --api-token «eyJhcGlfYWRk{b100}==»
kaggle competitions download -c x --key «{h32}»
modal token set --token-id ak-{A22} --token-secret «as-{A22}»
runpodctl config --apiKey «{U40}»
lambda cloud --api-key «secret_x_{h32}.{A32}»
vastai set api-key «{h64}»
sky check --token «{w40}»
ray start --head --redis-password=«rayofsun»
ray start --redis-password '«rayofmoon»' --address h:1
dask-scheduler --tls-key k.pem --password «daskword»
mlflow server --backend-store-uri mysql://me:«mlflow33»@h/ml
labelstud start --username me --password «labelling»
ollama run x --api-key «{A40}»
vllm serve m --api-key «token-abc123»
python -m sglang.launch_server --api-key «sk-mine-9x8y7z»
litellm --master_key «sk-1234abcd5678»
text-generation-launcher --hf-api-token «hf_{A34}»
tritonserver --grpc-restricted-protocol=shared-memory:admin-key=«triton-adm1n»
python app.py --gradio-auth me:«gradiolus»
streamlit run x -- --db-pass «streamlet»
poetry config pypi-token.pypi «pypi-AgEI{w100}»
poetry publish -u __token__ -p «pypi-AgEI{w100}»
uv publish --token «pypi-AgEI{w100}»
UV_INDEX_CORP_PASSWORD=«ultraviolet» uv sync
pip config set global.index-url https://me:«pipword3»@nexus/simple
conda config --set channel_alias https://conda.corp/t/«{A32}»/
npm login --auth-type=legacy; npm config set //r/:_authToken «npm_{A36}»
cargo login «cio{A32}»
gem push --key x -k rubygems_«{h48}»
dotnet nuget push x.nupkg --api-key «oy2{a43}»
mvn deploy -Dgpg.passphrase=«mavenly»
gradle publish -PrepoPassword=«gradually»
sbt -Dsonatype.password=«scalable»
jarsigner -storepass «bottled8» x.jar a
signtool sign /f c.pfx /p «inkwell77» x.exe
openssl pkcs12 -export -passout pass:«pkcs12word» -in c
openssl req -new -passin env:X -key <(echo x) ; openssl genrsa -aes256 -passout pass:«genrsapw»
cryptsetup luksOpen /dev/sda x <<< «luksword»
echo -n «luksword2» | cryptsetup luksFormat /dev/sda -
smbclient -U 'DOM\me%«smbword3»' //h/s
net use Z: \\h\s «netuse44» /user:DOM\me
runas /user:adm cmd; psexec \\h -u adm -p «psexec55» cmd
wmic /node:h /user:me /password:«wmicword» os
schtasks /create /ru me /rp «planner66» /tn x
nmcli dev wifi connect Lab password «wifiword7»
wpa_passphrase Lab «wpaphrase»
iwconfig wlan0 key s:«wepkey12345»
chpasswd <<< 'me:«chpassword»'
echo 'me:«saltmine2»' | chpasswd
usermod -p '«$6$abc$xyzxyzxyzxyzxyzxyzxyzxyz»' me
passwd me <<< $'«newpass9»'
ipmitool -I lanplus -H b -U a -P«bmcword» chassis status
redfish --username root --password «redfishing»
racadm -r h -u root -p «racadmin1» getsysinfo
ssh -o ProxyCommand="connect -H me:«proxycmd»@p:3128 %h %p" h
swaks --auth-user me --auth-password «swaksword»
mail -S smtp-auth-password=«mailword» x
telegram-send --token {d10}:«AA{w33}»
slackcat --token «xoxp-{d12}-{d12}-{d12}-{h32}»
curl -X POST "https://api.pushover.net/1/messages.json" -F "token=«{a30}»" -F "user=me"
curl -H "X-Figma-Token: «figd_{w40}»" https://x
curl --oauth2-bearer «{w40}» https://x
curl --aws-sigv4 x --user "AKIA{o16}:«{b40}»" https://x
curl --cert c.pem:«certword» https://x
curl --pass «keypassw» --key k https://x
curl --netrc-file <(echo "machine h login me password «netrcpw2»") https://h
http --auth-type=bearer --auth=«{w40}» x
xh -A bearer -a «{w40}» x
grpcurl -H 'authorization: Bearer «{w40}»' h:443 list
websocat -H='Authorization: Basic «{b28}»' ws://h
ffmpeg -i x -f flv rtmp://a.rtmp.youtube.com/live2/«{a4}-{a4}-{a4}-{a4}-{a4}»
mosquitto_sub -u me --pw «mosquit2» -t x
nats sub x --user me --password «natsword»
etcdctl --user=root:«etcdword» get x
consul kv get -token=«{h8}-{h4}-{h4}-{h4}-{h12}» x
vault write auth/approle/login role_id=x secret_id=«{h8}-{h4}-{h4}-{h4}-{h12}»
vault operator unseal «{b44}»
sops --decrypt --age «AGE-SECRET-KEY-1{age58}»
pass insert x <<< «passinsert»
op item create --category login 'password=«onepassw»'
bw unlock «bitwarden8»
bw login me@x.org «bitwarden9»
sentry-cli --auth-token «sntrys_eyJ{b80}_{w43}» releases
datadog-ci --apiKey «{h32}»
newrelic --apiKey «NRAK-{U27}»
heroku config:set SECRET_KEY=«herokuku»
flyctl secrets set DB_PASSWORD=«flyctlpw»
netlify deploy --auth «nfp_{A36}»
vercel --token «{A24}»
firebase deploy --token «1//0{w60}»
eas secret:create --name X --value «easvalue1»
wrangler secret put X <<< «lassoed77»
databricks configure --token <<< «dapi{h32}»
snowflake --private-key-passphrase «snowphrase»
props.setProperty("password", "«propset1»");
System.setProperty("javax.net.ssl.trustStorePassword", "«trustno1»");
DriverManager.getConnection(url, "me", "«drivermgr»");
new MongoClient("mongodb://me:«newmongo»@h");
mysql.createConnection({host: 'h', user: 'me', password: '«createconn»'})
pymysql.connect("h", "me", "«pymysqlpw»", "db")
psycopg2.connect("dbname=x user=me password=«psycopgpw»")
sqlalchemy.create_engine('mysql://me:%s@h/x' % '«percentpw»')
ftplib.FTP("h", "me", "«ftplibpw»")
smtplib.SMTP("h").login(user="me", password="«smtplibpw»")
imap.login('me', '«imaplogin»')
ssh.connect('h', 22, 'me', '«paramikopw»')
fabric.Connection("h", connect_kwargs={"password": "«fabricpw»"})
child.expect('assword:'); child.sendline('«postline8»')
session.auth = ("me", "«sessauth1»")
httpx.Client(auth=("me", "«httpxauth»"))
aiohttp.BasicAuth(login="me", password="«aiohttppw»")
urllib.request.HTTPPasswordMgr().add_password(None, u, "me", "«urllibpw»")
getpass.getpass = lambda: "«lambdapw2»"
HfApi(token="hf_«{A34}»")
OpenAI(api_key=os.getenv("KEY") or "«sk-{A48}»")
genai.configure(api_key="«AIza{w35}»")
Minio("h", "minioadmin", "«miniopass»")
InfluxDBClient(url="u", token="«{w86}==»")
Elasticsearch(["h"], http_auth=("elastic", "«elasticpw»"))
Elasticsearch("h", basic_auth=("elastic", "«elasticpw2»"))
Elasticsearch("h", api_key=("id", "«{w22}»"))
KafkaProducer(sasl_plain_username="me", sasl_plain_password="«kafkaplain»")
pika.PlainCredentials('me', '«pikaword»')
Github("«ghp_{A36}»")
jira.JIRA(u, basic_auth=("me", "«jiraword»"))
tweepy.OAuth1UserHandler("{A25}", "«{A50}»")
Cipher_key = bytes.fromhex("«{h64}»")
AES_KEY = [«0x2b, 0x7e, 0x15, 0x16, 0x28, 0xae, 0xd2, 0xa6»]
aes_key = b'\x2b«~\x15\x16(\xae\xd2\xa6»'
passphrase=b'«bytesphrase»'
"DB_PASSWORD": "«taskdef1»",
{"name": "DB_PASSWORD", "value": "«taskdef2»"}
DB_PASSWORD: ${DB_PASSWORD:-«fallbackpw»}
password = "{cipher}«{h64}»"
spring.redis.password: «springred»
"ConnectionStrings": {"Default": "Server=h;Database=d;User Id=me;Password=«appsettings»"}
<connectionStrings><add name="x" connectionString="Data Source=h;User ID=me;Password=«webconfig»"/></connectionStrings>
<Credential><UserName>me</UserName><Secret>«credxml1»</Secret></Credential>
<data name="Password"><value>«resxvalue»</value></data>
<key>apiPassword</key><string>«pliststr»</string>
<bean><property name="userPassword"><value>«beanvalue»</value></property></bean>
[mysqld]\nwsrep_sst_auth=sst:«galeraword»
MAIL_URL=smtp://me:«mailurl8»@smtp:25
REDIS_URL=redis://:«redisurl9»@h/0
BASIC_AUTH=me:«basicenv1»
HTTP_AUTH_CREDENTIALS="me:«basicenv2»"
ADMIN_CREDS='admin/«admincred»'
LDAP_BIND_PW="«ldapbind»"
SMTP_PASSWD=«smtppasswd»
pgpassword: «pgpassy»
dbpasswd: «dbpasswd3»
userpw=«userpw44»
rootpwd="«rootpwd55»"
mypassword1 = "«mypass66»"
passwd2='«passwd77»'
thePassword := "«thepass88»"
PasswordHashSalt: "«phs-99-x»"
api-secret: «apisecret1»
APISECRET=«apisecret2»
app.secret=«appsecret3»
jwt.secret-key=«jwtsecret4»
encryption.key=«{h64}»
masterKey: '«{h32}»'
access_key_secret: «{A30}»
accessKeySecret="«{A30}»"
SecretAccessKey: «{b40}»
"SessionToken": "«{b200}»"
clientSecret: '«{w40}»'
client-secret=«{w40}»
appkey=«{A24}»
app_secret="«{h32}»"
consumer_secret = «{A50}»
oauth_token_secret=«{A45}»
bot_token: "{d10}:«AA{w33}»"
webhook_secret = '«hookword1»'
signing_secret: «{h32}»
auth_key: "«{A32}»"
license_key=«{U5}-{U5}-{U5}-{U5}-{U5}»
activation_code: «{U4}-{U4}-{U4}-{U4}»
recovery_codes: [«{a5}-{a5}», «{a5}-{a5}»]
mnemonic: "«abandon ability able about above absent absorb abstract absurd abuse access accident»"
seed_phrase="«legal winner thank year wave sausage worth useful legal winner thank yellow»"
private_key=0x«{h64}»
ETH_PRIVATE_KEY=«{h64}»
xprv9s21ZrQH143K«{A95}»
totp_secret: «{o32}»
pin_code = «8842»
PIN: «739201»
unlock_pin=«553201»
security_answer: «fluffycat9»
""",
    "a thirteenth list": r"""
PGPASSWORD=«marigold» psql -h db -U ml
dbpassword=«snapdragon»
userpassword: «foxglove»
smtppassword="«larkspur»"
mqttpassword=«delphinium»
redispass=«peony»
adminpassword = «hollyhock»
wifipassword: '«primrose»'
ftppasswd=«bluebell»
apisecret=«{h32}»
clientsecret="«{A40}»"
accesstoken=«{w40}»
refreshtoken: «{w64}»
authtoken=«{h40}»
secretkey = «{b40}»
privatekey="«{b44}»"
encryptionkey=«{h64}»
--user=me:«honeysuckle»
--user me:«wisteria»
--proxy-user=me:«jasmine»
-u 'me:«sweet pea»'
--userpwd me:«lavender»
--basic-auth=me:«rosemary»
bash -c "curl -u me:«coriander» https://x | tar xz"
bash -lc 'PGPASSWORD=«tarragon» pg_dump ml > x'
sh -c 'mysql -uroot -p«marjoram» < s.sql'
zsh -c "export HF_TOKEN=hf_«{A34}» && python t.py"
ssh node7 "cd /w && WANDB_API_KEY=«{h40}» python t.py"
su -c 'sshpass -p «chervil» scp a b@c:' me
nohup bash -c 'DB_PASS=«fennel88» python t.py' &
tmux new -d 'TOKEN=«{A32}» python t.py'
srun bash -c "python t.py --password «caraway»"
mysql -p«lovage» -u root
mysql -u root -p'«bay leaf»' ml
mysqldump -h h -u me -p«savory1» ml
mariadb -p"«sorrel-x»"
sshpass -p "«borage 4»" rsync -a x y
sshpass -p«angelica» ssh h
--pin «8421»
--pin=«90210»
--otp «445566»
--otp=«998877»
--totp «123987»
--mfa-code «661122»
--2fa-code=«771133»
pin: «4455»
sessionid=«{a32}»
sessionid: «{A32}»
csrftoken=«{A64}»
csrfmiddlewaretoken=«{A64}»
XSRF-TOKEN=«{w40}»
Cookie: sessionid=«{a32}»; csrftoken=«{A32}»
session_token="«{w64}»"
remember_token: «{A60}»
auth_cookie=«{w44}»
Passwort=«Gänseblümchen»
passwort_db: «Löwenzahn»
db-kennwort=«Klatschmohn»
contraseña=«amapola»
contrasena_bd: «girasol9»
mot de passe: «pâquerette»
MOT_DE_PASSE=«jonquille»
senha_banco=«margarida»
password_utente: «papavero»
wachtwoord=«klaproos»
lösenord: «vallmo77»
passord=«valmue88»
hasło=«stokrotka»
heslo_db=«sedmikráska»
jelszó=«pipacs99»
parolă: «margareta»
şifre=«papatya5»
пароль=«ромашка7»
пароль_бд: «василёк»
парола=«лайка123»
密码=«xiangrikui»
数据库密码: «mudan2024»
パスワード=«himawari»
비밀번호: «haebaragi»
mật khẩu: «hoahuong1»
kata sandi: «melati77»
รหัสผ่าน=«mali5566»
पासवर्ड: «gulab123»
κωδικός=«marina77»
SecretStr('«chamomile»')
api_key: SecretStr = SecretStr("«{A32}»")
password=SecretStr("«calendula»")
pydantic.SecretBytes(b"«echinacea»")
token = SecretValue.plain_text("«valerian9»")
if (password := "«yarrow12»") != typed:
while (secret := '«comfrey3»'):
password = {q}«mugwort»{q}
secret = '''\n«tansy and rue»'''
SECRET = r{q}«wormwood»{q}
password: |\n  «feverfew»
password: >\n  «horehound»
secrets:\n  db: «pennyroyal»
api:\n  token: "«{w40}»"
os.environ['DB_PASSWORD'] = '«agrimony»'
os.environ["WANDB_API_KEY"]="«{h40}»"
os.environ.setdefault('DB_PASSWORD', '«betony1»')
os.putenv("SECRET_KEY", "«bugle-9x»")
environ["MYSQL_PWD"] = "«burdock»"
os.environ.update({'API_SECRET': '«celandine»', 'X': '1'})
env = {**os.environ, "DB_PASSWORD": "«centaury»"}
subprocess.run(cmd, env={"PGPASSWORD": "«cinquefoil»"})
subprocess.run(["mysql", "-p«clary-sage»", "ml"])
subprocess.check_call(["curl", "-u", "me:«coltsfoot»", url])
subprocess.run("mysql -uroot -p«costmary» ml", shell=True)
os.system("sshpass -p «cowslip1» ssh h")
auth = ("me", "«dandelion»")
login = ('me', '«elecampane»')
credentials=("svc", "«eyebright»")
user, passwd = ("me", "«figwort7»")
<password>«fumitory»</password>
<Password encrypted="false">«gentian8»</Password>
<db user="me" password="«goldenrod»"/>
<setting name="apiKey" value="«{A32}»"/>
<env name="DB_PASSWORD">«groundsel»</env>
Authorization: Basic «bWU6{b20}»
curl -H 'Authorization: Basic «bWU6{b20}»' https://x
headers["Authorization"] = "Basic «bWU6{b20}»"
machine h login me password «heartsease»
machine api.h\nlogin me\npassword «hyssop22»
default login me password «knapweed»
sk-ant-api03-«{w95}»
sk-proj-«{w100}»
hf_«{A34}»
ghp_«{A36}»
gho_«{A36}»
glpat-«{w20}»
xoxb-{d12}-{d12}-«{A24}»
AKIA{o16} «{b40}» secret
AIza«{w35}»
ya29.«{w80}»
SG.«{w22}.{w43}»
sk_live_«{A24}»
npm_«{A36}»
pypi-AgEIcHlwaS5vcmc«{w100}»
dckr_pat_«{w27}»
dapi«{h32}»
nvapi-«{w64}»
gsk_«{A52}»
r8_«{A37}»
hvs.«{w90}»
shpat_«{h32}»
lin_api_«{A40}»
figd_«{w40}»
dop_v1_«{h64}»
glsa_«{A32}_{h8}»
eyJhbGciOiJSUzI1NiJ9.«eyJ{w60}.{w86}»
{d10}:AA«{w33}»
https://hooks.slack.com/services/T{U8}/B{U8}/«{A24}»
python train.py --wandb_key «{h40}» --lr 1e-4
python train.py --hf-token «hf_{A34}»
python train.py --api-key=«{A32}»
python train.py hub.token=«hf_{A34}»
python train.py +logger.api_key=«{h40}»
torchrun t.py --comet-api-key «{A25}»
accelerate launch t.py --hub_token «hf_{A34}»
deepspeed t.py --aws_secret «{b40}»
python t.py --s3-secret-key «{b40}»
python t.py --db postgresql://me:«lungwort»@h/ml
python t.py --mongo-uri 'mongodb://me:«mallow99»@h'
python t.py --redis redis://:«meadowsweet»@h:6379
python t.py --smtp-password '«milk thistle»'
python t.py --proxy http://me:«motherwort»@p:3128
wandb login --relogin «{h40}»
mlflow run . -P password=«mullein7»
FROM x AS y\nENV WANDB_API_KEY=«{h40}»
{"name":"WANDB_API_KEY","value":"«{h40}»"}
apiVersion: v1\nkind: Secret\ndata:\n  api-key: «{b40}»
range: login password=«orpine11»
step 3: downloading https://me:«pimpernel»@h/x.tar
ERROR could not connect: postgres://me:«plantain»@db:5432/ml
auth failed for token «{h40}»
using api key «{A40}»
""",
}

ALIKE = {
    "an eleventh list": r"""
triton_poi_fused__to_copy_add_mul_{h8}_0d1d2de
ampere_sgemm_128x64_tn
sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas
cutlass_80_wmma_tensorop_f16_s161616gemm_f16_32x32_128x2_tn_align8
void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::Half>, at::detail::Array<char*, 3> >
ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)
_ZN2at6native27unrolled_elementwise_kernelIZZZNS0_21smooth_l1_kernel_cudaERNS_18TensorIteratorBaseEdENKUlvE_E_5ArrayIPcLi3EELi4E
triton_red_fused_native_layer_norm_{h16}
fmha_fwd_kernel_{h40}
kernel_{h64}
Cijk_Ailk_Bljk_HB_MT64x128x16_SN_AMAS3_BL1_BS1_EPS1_GLVWA4_GRVW4_GSU1_ISA90a_IU1_K1_KLA_LBSPPA0
cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_1x1x1_kernel0_0
fused_moe_kernel_gptq_awq_{h12}
cast_and_key_gather_kernel
jit_signature_sort_kernel
token_permute_kernel<__nv_bfloat16, int>
compute_session_hash_{h16}
hash_table_lookup_kernel(const unsigned long long*, int)
void cub::DeviceRadixSortOnesweepKernel<cub::DeviceRadixSortPolicy<unsigned int, long>::Policy900>
secretary_problem_kernel
paged_attention_v2_kernel<uint16_t, uint8_t, 128, 16, 128>
key_value_cache_update_kernel
apply_rotary_pos_emb_query_key_kernel
reshape_and_cache_flash_kernel
_attn_fwd_{h8}{h8}_0d1d2d34d5d6de7de8de9c10de
softmax_topk_token_select
triton_tem_fused_mm_t_view_{h6}
{h40}
{h64}
commit {h40}
git checkout {h40}
git+https://github.com/org/repo.git@{h40}
https://github.com/org/repo/blob/{h40}/model.py#L10
sha256:{h64}
torch-2.5.1-cp310-cp310-manylinux1_x86_64.whl --hash=sha256:{h64}
GPU-{h8}-{h4}-{h4}-{h4}-{h12}
MIG-{h8}-{h4}-{h4}-{h4}-{h12}
CUDA_VISIBLE_DEVICES=GPU-{h8}-{h4}-{h4}-{h4}-{h12}
run_id={h8}-{h4}-{h4}-{h4}-{h12}
run id: {a8}
trace_id={h32} span_id={h16}
traceparent: 00-{h32}-{h16}-01
ETag: "{h32}"
md5={h32}
checkpoint-{h8}.pt
docker pull nvcr.io/nvidia/pytorch@sha256:{h64}
image: ghcr.io/org/train@sha256:{h64}
integrity sha512-{b86}==
"resolved": "https://registry.example.org/p/-/p-1.0.0.tgz#{h40}"
job_{d6}
slurm-{d8}.out
SLURM_JOB_ID={d8}
build-id {h40}
cubin hash 0x{h16}
fingerprint: SHA256:{b43}
ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{b43} me@host
ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAQ{b120} me@host
{-}BEGIN CERTIFICATE{-}\n{b64}\n{b64}\n{-}END CERTIFICATE{-}
{-}BEGIN PUBLIC KEY{-}\n{b64}\n{-}END PUBLIC KEY{-}
node_uuid = {h8}-{h4}-{h4}-{h4}-{h12}
experiment_id={d18}
mlflow run {h32}
wandb run {a8} (https://wandb.ai/org/proj/runs/{a8})
/root/.cache/huggingface/hub/models--meta-llama--Llama-3-8B/snapshots/{h40}/config.json
/tmp/torchinductor_root/{a2}/c{a50}.py
/root/.triton/cache/{h64}/kernel.cubin
~/.nv/ComputeCache/{h1}/{h1}/{h14}
correlation 0x{h8}
PCI bus id 0000:3B:00.0
serial 1653921000{d3}
mac 0c:42:a1:5f:9d:e2
ipv6 fe80::{h4}:{h4}:{h4}:{h4}
pod/train-worker-{h10}-{a5}
arn:aws:s3:::bucket/runs/{h16}
i-{h17} (p4d.24xlarge)
ami-{h17}
blake2b={h128}
layer digest {h12}
--max_tokens=512
max_new_tokens: 2048
--pad-token-id 50256
eos_token='<|endoftext|>'
bos_token = "<s>"
--num-tokens-per-batch 8192
--tokenizer hf-internal-testing/llama-tokenizer
tokens_per_second=15321.5
--key-dim 64 --value-dim 64
num_key_value_heads=8
n_head_kv: 8
key_padding_mask=None
--sort-key length
--monitor-key val/loss
primary_key="id"
--session-length 30
session_config=tf.compat.v1.ConfigProto()
--seed 829113
--pin-memory True
pin_memory=True
pin_memory_device="cuda"
--pinned
--spin 100
--author "Jane Roe"
author=jane.roe
authors: [Jane Roe, Max Muster]
--authority local
--hash-buckets 65536
--signature-dtype float16
serving_signature=serving_default
signature_def: predict
--auth-method none
--auth none
--use_auth_token False
use_auth_token=True
token=None
password=None
password: null
api_key=""
api_key=''
token: ""
secret: false
--password-file /run/secrets/db
--token-file=/var/run/secrets/token
password_file = /etc/x/pw
--passes 4
--bypass True
--compass north
--pass-through
passband=0.3
pass_rate=0.87
n_passes: 3
--dropout 0.1 --attention-dropout 0.1
--lr 3e-4 --wd 0.1 --betas 0.9 0.95
--user 1000:1000
-u 1000:1000
docker run --user 1000:1000 --gpus all
--user root:root
--gpus "device=0,1"
-p 8080:80
-p 8888
srun -p gpu -n 8 python train.py
nsys profile -t cuda,nvtx -o out python train.py
python -u train.py
python -m torch.distributed.run --nproc_per_node=8 --rdzv_id=4711 --rdzv_endpoint=host:29500
rsync -a -e ssh src/ host:dst/
--rdzv-conf timeout=900
-P 8
xargs -P 8 -n 1
make -j8 -k
tar -xzf data.tar.gz
mysql -u root -p
mysql -P 3306 -h db
ssh -p 2222 host
scp -P 2222 x host:
scp -p x y
mkdir -p /data/out
install -p x y
7z a -mx9 out.7z x
sshpass -f /run/pw ssh host
curl -u "$USER:$PASS" https://x
curl -u me https://x
curl -H "Accept: application/json" https://x
curl -H "Authorization: Bearer $TOKEN" https://x
Authorization: Bearer <token>
Authorization: Bearer ${TOKEN}
Authorization: Bearer {token}
Authorization: Bearer ***
password=****
password=<redacted>
password=[REDACTED]
PASSWORD=$PASSWORD
PASSWORD=${DB_PASSWORD:?}
PASSWORD=$(cat /run/secrets/pw)
password: {{ vault_password }}
password: ${{ secrets.DB_PASSWORD }}
password: %(db_password)s
password: !secret db_password
set PASSWORD=%PASSWORD%
$env:TOKEN = $token
password = var.db_password
api_key = data.vault.key
postgres://$USER:$PASSWORD@db/ml
postgres://{user}:{password}@db/ml
postgres://user:password@localhost/ml
https://user:pass@example.com
https://github.com/org/repo
git@github.com:org/repo.git
ssh://git@host:2222/repo.git
s3://bucket/path:with:colons@2x.png
https://x.org/@user/post:12
redis://cache:6379/0
amqp://mq:5672
mailto:jane@x.org
jdbc:postgresql://db:5432/ml
docker://nvcr.io/nvidia/pytorch:24.01-py3
https://x.org/?page=2&sort=key&q=token
https://x.org/models?revision={h40}
https://x.org/dl?sha256={h64}
https://huggingface.co/org/model/resolve/{h40}/model.safetensors
https://youtu.be/{w11}
https://x.org/a?utm_source=mail&utm_id={a12}
model.embed_tokens.weight
token_embedding
token_type_embeddings
cls_token
transformer.h.0.attn.c_attn
self_attn.k_proj key: [2, 8, 512, 64]
key = self.k_proj(x)
query, key, value = qkv.chunk(3)
key_layer = mixed_key_layer.view(*shape)
past_key_values[0][0].shape
secret_sauce_block
PassManager
pass_manager.run(graph)
password_reset_view
PasswordValidator
class TokenClassificationHead(nn.Module):
def tokenize(text, max_length=512):
token = tokens[i]
tokens = tokenizer.encode(text)
token_ids = [101, 2023, 2003, 102]
token = next(iter(stream))
next_token = logits.argmax(-1)
next_token: 4711
token 17 of 512
token: 29871
"token": 50256
prompt tokens: 512, completion tokens: 128
first token latency: 42 ms
time per output token: 12.3ms
secret = input("Secret: ")
password = getpass.getpass()
password = os.environ["DB_PASSWORD"]
password = os.environ.get("DB_PASSWORD")
password=args.password
password = config.get("db", "password")
api_key = os.getenv("OPENAI_API_KEY")
token = request.headers.get("Authorization")
if password == user.password:
if not api_key: raise ValueError("api_key is missing")
assert token is not None
password: str
password: Optional[str] = None
password: SecretStr
def login(user: str, password: str) -> bool:
def login(user, password=None):
raise ValueError("password must not be empty")
print("password:", len(password))
logger.info("token expired at %s", when)
"password": "string"
{"type": "password", "name": "pw"}
<input type="password" name="password"/>
<label for="password">Password</label>
password: { type: string, minLength: 8 }
PasswordField(max_length=128)
token = models.CharField(max_length=64)
parser.add_argument("--password", help="password of the database")
parser.add_argument("--token", type=str, required=True)
parser.add_argument("--api-key", default=None)
parser.add_argument("--tokenizer", default="gpt2")
@click.option("--password", prompt=True, hide_input=True)
os.environ["TOKENIZERS_PARALLELISM"] = "false"
export TOKENIZERS_PARALLELISM=false
os.environ["CUDA_VISIBLE_DEVICES"] = "0,1"
os.environ["NCCL_DEBUG"] = "INFO"
os.environ["MASTER_ADDR"] = "10.0.0.4"
os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
XLA_FLAGS=--xla_gpu_enable_triton_gemm=false
LD_LIBRARY_PATH=/usr/local/cuda/lib64
PATH=/usr/bin:/bin
SSH_AUTH_SOCK=/tmp/ssh-XXXX/agent.1
XAUTHORITY=/run/user/1000/gdm/Xauthority
KRB5CCNAME=FILE:/tmp/krb5cc_1000
GPG_TTY=/dev/pts/0
AWS_REGION=us-east-1
AWS_PROFILE=training
GOOGLE_APPLICATION_CREDENTIALS=/etc/gcp/sa.json
secretName: db-credentials
secretKeyRef: {name: db, key: password}
secretKeyRef:\n  name: db\n  key: password
kind: Secret
imagePullSecrets:\n- name: regcred
valueFrom:\n  secretKeyRef:\n    name: pg
credential.helper=store
git config credential.helper 'cache --timeout=3600'
credentials_path="/etc/creds.json"
credentials = service_account.Credentials.from_service_account_file("sa.json")
auth = HTTPBasicAuth(user, password)
requests.get(url, auth=(user, password))
session = requests.Session()
session = tf.Session()
session_id = 3
with ort.InferenceSession("model.onnx") as session:
session.run(None, {"input": x})
cookie = cookies.get("sessionid")
cookiecutter gh:org/template
private_key_path=~/.ssh/id_ed25519
ssh -i ~/.ssh/id_rsa host
key=lambda x: x[1]
sorted(d, key=operator.itemgetter(1))
key: train/loss
key="conv1.weight"
keys = ["input_ids", "attention_mask"]
keyword=value
keyboard_layout=us
api_version=v1
api_base=https://api.x.org
access_mode=rw
access_log=/var/log/access.log
accesskey_rotation_days=90
monkey=banana
turkey: dinner
hockey=3
donkey_kong_level=4
tokenization=bpe
secretariat: Geneva
passenger_count=4
passport_office: Bern
compassion=1
otpauth_enabled=false
opt=adamw
pin=17
gpio_pin: 4
pin_count=64
pins=[1, 2, 3]
spinlock=1
pint=2
salt_lake_city
salted=true
noise_salt_and_pepper=0.1
nonce=1
signing_region=eu
sig=sigmoid
sigma=0.5
signal=SIGTERM
design_token=primary-500
csrf_exempt=True
csrf_protection=on
basic_block=3
Basic usage: run it
Basic Linear Algebra Subprograms
Basic training recipe
Bearer of bad news
bearer_count 4
Digest of the week
the password is hashed with bcrypt
Password for user:
enter your password below
forgot password? reset it
password policy: at least 12 characters
wrong password
the secret of success
a token is a word piece
no token was given
the key is in the dictionary
invalid api key
api key required
Passwort vergessen
contraseña incorrecta
mot de passe oublié
пароль неверен
密码错误
パスワードを忘れた
clave primaria
chiave=primaria
senha incorreta
parola chiave
Schlüssel: spalte
clef de sol
base64 shape WzEsIDMsIDIyNCwgMjI0XQ==
shape_b64=WzMyLDEyOF0=
data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk
input_layout: NHWC, dims 8x224x224x3
f32[32,128]{1,0} fusion(f32[32,128]{1,0} %p0), kind=kLoop, calls=%fused_computation.{d3}
%custom-call.{d2} = (bf16[8,512]{1,0}, s8[4194304]{0}) custom-call(...), custom_call_target="__cublas$gemm"
metadata={op_name="jit(train_step)/jit(main)/dot_general" source_file="train.py" source_line=42}
module_0012.jit_train_step.{h16}
jit_train_step({d19})
program_id={d19}
aten::_scaled_dot_product_flash_attention
autograd::engine::evaluate_function: AddmmBackward0
ProfilerStep#12
Optimizer.step#AdamW.step
nccl:all_reduce
DataLoader worker (pid(s) 1234, 1235) exited
python[4711]: thread 0x{h12}
2025-01-02T03:04:05.678Z INFO step 12 loss 3.21
epoch=3-step=1200-val_loss=0.3312.ckpt
llama-3.1-8b-instruct-q4_k_m.gguf
stable-diffusion-xl-base-1.0
ghcr.io/org/train:sha-{h7}
v2.5.1+cu124
2.6.0a0+git{h7}
NVIDIA H100 80GB HBM3
Tesla V100-SXM2-32GB
libcudnn_ops_infer.so.8
/usr/lib/python3.10/secrets.py
import secrets
from tokenize import tokenize
secrets.token_hex(16)
/site-packages/transformers/tokenization_utils_base.py
/opt/venv/lib/python3.11/site-packages/jwt/api_jwt.py
token_bucket.py:12(refill)
passlib/handlers/bcrypt.py
""",
    "a twelfth list": r"""
void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4, false, false, cutlass::half_t>, false, true, false>(flash::Flash_fwd_params)
_ZN5flash16flash_fwd_kernelI23Flash_fwd_kernel_traitsILi128ELi128ELi64ELi4ELb0ELb0EN7cutlass6half_tE19Flash_kernel_traitsE
_Z17rmsnorm_kernel_v2I6__halfLi256ELb1EEvPKT_S3_PS1_fi
nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NTN
kernel_cutlass_gemm_key_tensorptr_f16_gmem_o_{h8}
triton_poi_fused_embedding_token_{h4}
triton_per_fused__softmax_backward_data_pass_{d2}
gather_kv_cache_by_key_{h32}
wgrad_alg0_engine_NHWC_{h6}
dgrad2d_alg1_1
volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn
turing_h1688cudnn_256x64_sliced1x2_ldg8_relu_exp_small_nhwc_tn_v1
maxwell_scudnn_winograd_128x128_ldg1_ldg4_tile148n_nt
void splitKreduce_kernel<32, 16, int, float, __half, float, __half, true, true, false>
elementwise_kernel_with_index<int, at::native::arange_cuda_out>
CUDAFunctorOnSelf_add<c10::BFloat16>
rocblas_gemvn_kernel<false, 64, 16, int, float const*>
__amd_rocclr_fillBufferAligned
MatMul_{d4}_PWN(Sigmoid_{d4}, Mul_{d4})
/model/layers.0/self_attn/k_proj/MatMul
/model/encoder/layer.11/attention/self/key/MatMul + /model/encoder/Add
{ForeignNode[/embeddings/token_type_embeddings/Gather.../head/Gemm]}
Reformatting CopyNode for Input Tensor 0 to /key/Transpose
[HostToDeviceCopy 0]
tf_op_layer_key/strided_slice
while/body/_1/gradient_tape/model/token_and_position_embedding/Reshape
jit(train_step)/transpose(jvp(Transformer))/block_3/attn/key/dot_general
fusion.{d4}.remat{d1}
loop_dynamic_slice_fusion_{d3}
%all-gather-start.{d2} = (bf16[8,128]{1,0}, bf16[64,128]{1,0}) all-gather-start(%param.{d2})
channel_id={d4}, replica_groups={{0,1,2,3}}
hlo_module=jit_step.{d5}, fingerprint={h32}
fingerprint_before_lhs="{h32}"
GpuGraph(cuGraphExec=0x{h12})
cudaGraphLaunch correlation={d6}
graphNodeId={d12}
stream 0x{h12}
NCCL INFO comm 0x{h12} rank 0 nranks 8 cudaDev 0 busId 1b000 commId 0x{h16}
NCCL communicator hash 0x{h16}
ncclUniqueId digest {h16}
UCX key exchange done
IB port GUID 0x{h16}
rkey=0x{h8} lkey=0x{h8}
memory handle {h64}
IPC handle key 12
shmkey 0x0000{h4}
semaphore key 4711
ftok("/tmp", 'k')
--key_size 64 --token_size 8
--token_mixing conv
--tokens 128
--kv-token-budget 4096
token_budget: 8192
tokens_per_sample=2048
max_source_tokens=1024
special_tokens_map_file=null
tokenizer.json
tokenizer_config: {"model_max_length": 4096, "pad_token": "<pad>"}
"added_tokens_decoder": {"128000": {"content": "<|begin_of_text|>", "special": true}}
"bos_token": {"content": "<s>", "lstrip": false}
chat_template: "{% for message in messages %}"
image_token_id: 151655
vision_start_token_id: 151652
sampling: {temperature: 0.7, top_p: 0.9, seed: 4711}
generation_config={'eos_token_id': [128001, 128009]}
stop_token_ids=[2, 32000]
prefix_token_ids: "1,2,3"
token_shift=True
token_reduction: mean
token_healing=on
logit_processor=token_ban
--passthrough-args "--foo"
--num-passes=3
--backward-pass-overlap
pass_config: {enable_fusion: true}
compile_passes=[dce, cse]
pass_name="ConstantFolding"
--pass-pipeline='builtin.module(canonicalize)'
--opt-pass O3
pass: 3
passes: ["fuse", "fold"]
pw_advection=1.5
depthwise_pw_kernel=1
pwl: 3
key_frame_interval: 30
--keyframe 12
keypoints_in: 17
keyed_jagged_tensor
kjt.keys(): ['f0', 'f1']
key_averages().table(sort_by="cuda_time_total")
sort_by_key
reduce_by_key
group_by_key_kernel
segment_keys=[0, 3, 7]
dictionary key 'input_ids'
missing keys: ['lm_head.weight'], unexpected keys: []
Unexpected key(s) in state_dict: "module.fc.weight"
KeyError: 'attention_mask'
key mismatch at layers.3
state_dict keys 291
lr_key: base
metric_key=eval/accuracy
monitor: val_auc
best_key=val_loss_0123
--wandb-key-prefix run
redis_key_prefix=train:
s3_key=checkpoints/step_1000/model.pt
s3_key: runs/{h8}/model.safetensors
object_key: datasets/v2/part-00012.parquet
partition_key=2024-06-01
cache_key={h64}
cache-key: pip-{h40}
idempotency_key={h8}-{h4}-{h4}-{h4}-{h12}
compile_cache_key={h32}
fx_graph_cache_key=f{a50}
autotune_key=(4096, 4096, 64, 'torch.float16')
triton key {h64}
inductor_hash={h64}
code_hash: {h40}
config_hash={h32}
dataset_fingerprint={h16}
fingerprint: "{h64}"
checksum=crc32:{h8}
sha1={h40}
digest="sha256:{h64}"
git_sha: {h40}
GIT_COMMIT={h40}
commit_id = "{h40}"
revision="{h40}"
base_commit={h7}
build_id={h40}
version_hash={h12}
model_hash={h10}
model_id=m-{h24}
job_id={h32}
request_id: req_{A24}
span_id={h16}
traceID={h32}
correlationId: {h8}-{h4}-{h4}-{h4}-{h12}
session_name=train-{h8}
session: {d4}
session_timeout=3600
session_dir=/tmp/ray/session_2025-01-01_00-00-00_{d6}_{d3}
session_group=3
cluster_id={h16}
node_id={h56}
node_ip=10.0.0.4
object_ref({h56})
actor_id={h32}
worker_id={h56}
placement group {h36}
ray_job_{h16}
wandb_run_id={a8}
mlflow_run_id={h32}
clearml_task_id={h32}
comet_experiment={h32}
neptune run NLP-{d3}
optuna study_{d3}
trial_{h8}
hydra.job.num=3
hydra/launcher=submitit_slurm
+trainer.devices=8
~model.token_mixer
seed_everything=4711
secret_seed_count=0
password_length=16
min_password_len: 12
password_encryption: scram-sha-256
password_column=pw_hash
password_hashers: [argon2, bcrypt]
hash_password=True
reset_password_url=https://x.org/reset
forgot_password: true
enable_password_auth=false
PasswordAuthentication no
PermitEmptyPasswords no
AuthorizedKeysFile .ssh/authorized_keys
PubkeyAuthentication yes
HostKeyAlgorithms ssh-ed25519
auth_type=oauth2
authn: jwt
auth_provider_x509_cert_url
auth_url=https://idp.corp/auth
token_url: https://idp.corp/token
token_endpoint=https://idp.corp/oauth2/token
token_type=Bearer
token_expiry: 3600
token_ttl=24h
access_token_lifetime=300
refresh_token_rotation=true
token_uri: https://oauth2.googleapis.com/token
grant_type=password
grant_type=client_credentials
response_type=code
scope=openid profile email
client_id=train-ui
api_key_name=primary
api_key_id={h8}
api_keys_enabled: false
secret_name=prod/db
secretsmanager:us-east-1
secret_arn=arn:aws:secretsmanager:us-east-1:123456789012:secret:db-AbCdEf
secret_version=7
secret_ref: db-secret
kms_key_id=alias/train
kms_key_arn: arn:aws:kms:eu-west-1:123456789012:key/{h8}-{h4}-{h4}-{h4}-{h12}
ssh_key_name=me-laptop
ssh_keys: [me, you]
key_pair=train-key
key_name: my-key
public_key=ssh-rsa AAAAB3NzaC1yc2EAAA
pubkey: {h64}
certificate_arn=arn:aws:acm:us-east-1:123456789012:certificate/{h8}-{h4}-{h4}-{h4}-{h12}
cookie_domain=.corp.net
cookie_secure=True
session_cookie_name=sid
csrf_cookie_name=csrftoken
csrf_token_enabled=yes
pin_to_core=3
pin_threads=True
pinning: numa
unpinned=2
the token is invalid
your token has expired
enter the 6 digit code
code: 404
error code 700
exit code: 137
status code = 200
code=E0308
zip_code=8001
country code CH
source_code_hash={h40}
password reset requested for user 12
user logged in with password
passwords do not match
a passphrase is required
pass the tensor to the kernel
pass it on: 12 steps
first pass took 12 ms
second pass = 3.4 s
bypass the cache
in the secret garden
secret handshake protocol
api key rotation is due
keys are sorted lexicographically
press any key to continue
key takeaways: overlap is poor
a bearer channel of 64 kbit/s
basic authentication is off
the signature is f(x: int) -> str
docstring: token (str): the token to use
:param password: the password of the user
@param token the token to use
password (str, optional): the password. Defaults to None.
    token: str | None = None,
    password: str = Field(..., min_length=8)
    api_key: str = os.environ.get("API_KEY", "")
password: Annotated[str, Form()]
token: Annotated[str, Depends(oauth2_scheme)]
oauth2_scheme = OAuth2PasswordBearer(tokenUrl="token")
current_user: User = Depends(get_current_user)
def verify_password(plain_password, hashed_password):
return pwd_context.verify(plain_password, hashed_password)
pwd_context = CryptContext(schemes=["bcrypt"], deprecated="auto")
if not verify_password(password, user.hashed_password):
hashed = bcrypt.hashpw(password.encode(), bcrypt.gensalt())
token = create_access_token(data={"sub": user.username})
jwt.decode(token, SECRET_KEY, algorithms=[ALGORITHM])
jwt.encode(payload, settings.secret, algorithm="HS256")
hmac.new(key, msg, hashlib.sha256).hexdigest()
Fernet(key)
AES.new(key, AES.MODE_GCM, nonce=nonce)
key = Fernet.generate_key()
key = os.urandom(32)
token = secrets.token_hex(16)
password = generate_password(16)
password = request.form["password"]
const { password } = req.body;
const token = req.headers['x-access-token'];
const password = document.getElementById('password').value;
this.password = password;
password: this.state.password
process.env.DB_PASSWORD
password := os.Getenv("DB_PASSWORD")
String password = System.getenv("DB_PASSWORD");
let password = env::var("DB_PASSWORD")?;
std::string password = argv[2];
char password[64];
char password[MAX_LEN] = {0};
var password string
String password;
private String password;
@Column(name = "password")
SELECT password FROM users WHERE id = 1
CREATE TABLE u (id INT, password VARCHAR(255), token TEXT)
ALTER TABLE users ADD COLUMN password TEXT
password TEXT NOT NULL
IDENTIFIED BY PASSWORD
CREATE USER me WITH PASSWORD NULL
GRANT SELECT ON secrets TO me
docker run --user root:root img
docker exec -u app:app c ls
chown me:staff x
install -o root -g root x y
rsync -e "ssh -p 22" a b:c
net user
net use Z: \\h\s
net user me /delete
curl -u : --negotiate http://x
kinit -kt /etc/krb5.keytab me
ssh-keygen -t ed25519 -N "" -f k
ssh-add -K ~/.ssh/id
openssl dgst -sha256 -sign k.pem x
openssl x509 -in c.pem -noout -text
gpg --verify x.sig x
gpg --keyserver keys.openpgp.org --recv-keys {H40}
keytool -list -keystore k.jks
apt-key adv --recv-keys {H16}
docker trust sign img:1
kubectl get secret db -o yaml
kubectl create token sa
gh auth status
vault read secret/db
aws sts get-session-token
aws secretsmanager get-secret-value --secret-id prod/db
echo done | tee log
echo $PASSWORD | docker login --password-stdin
read -sp "Password: " PW
stty -echo; read pw
unset WANDB_API_KEY
test -n "${HF_TOKEN}"
[[ -z $TOKEN ]] && exit 1
https://x.org/cb?code=1&state=2
https://x.org/?ticket=42
https://x.org/hooks/useState
https://hooks.example.org/docs/getting-started-with-webhooks
mailto:a.b@c.org?subject=x
xmpp:me@jabber.org
sip:alice@atlanta.com
$1 and $6 are columns
costs $5$ or $6$
awk '{print $1$2}'
regex ^a$1$
{"kty":"RSA","n":"{w86}","e":"AQAB"}
{"d": 3, "k": 64, "q": "int8"}
{"k": "value", "v": "other"}
""",
    "a thirteenth list": r"""
python -u train.py -p bf16
python train.py --config configs/llama.yaml --seed 42 --max-tokens 2048
torchrun --nproc-per-node 8 --rdzv-backend c10d train.py --tokenizer-name gpt2
accelerate launch --num_processes 4 t.py --hub_model_id me/model --push_to_hub
deepspeed --include localhost:0,1 t.py --deepspeed ds.json
nsys profile -t cuda,nvtx,osrt -s none -o r --force-overwrite true python t.py
ncu --set full --kernel-name regex:gemm -c 10 python t.py
opscope run -o lenet -- python t.py
srun --gres=gpu:8 --ntasks-per-node=8 python t.py
docker run --gpus all -u 1000:1000 -v /data:/data -p 6006:6006 img python t.py
docker run -u root -p 8888:8888 img
podman run --user app:app -p 80:80 x
psql -U me -p 5432 -h db ml
cp -u a -p b
sudo -u me -p '' ls
ssh -p 2222 -i key.pem me@h
rsync -avz -e "ssh -p 2222" src/ me@h:dst/
mpirun -np 16 -H a:8,b:8 -x NCCL_DEBUG=INFO python t.py
CUDA_VISIBLE_DEVICES=0,1 TOKENIZERS_PARALLELISM=false python t.py
python -c "import secrets; print(secrets.token_hex(8))"
python -m tokenizers.tools --vocab v.json
pytest -k "password or token" -q
pytest tests/test_auth.py::test_login_with_password
git commit -m "fix token refresh"
git log --author=me --grep=password
grep -rn password src/
sed -i 's/password/secret/' x
find . -name "*token*"
ls ~/.ssh/ ~/.aws/credentials
cat /run/secrets/db_password
chmod 600 id_rsa
export WANDB_MODE=offline
export WANDB_PROJECT=secret-santa
export HF_HOME=/data/hf
export TRANSFORMERS_OFFLINE=1
export NCCL_SOCKET_IFNAME=eth0
export PYTHONHASHSEED=0
MASTER_ADDR=node7 MASTER_PORT=29500
LOCAL_RANK=3 WORLD_SIZE=16
SLURM_JOB_NODELIST=node[1-4]
model.tokens_per_step=8192 trainer.max_epochs=3
+trainer.callbacks.checkpoint.monitor=val/loss
optimizer.key=adam
data.key_column=image
dataset.text_key=caption
loader.pin_memory=true
attn.key_bias=false
moe.token_drop=true
logger.name=run-2024
{"lr": 0.1, "tokens": 512, "key": "loss"}
{"token_ids": [1, 2, 3], "attention_mask": [1, 1, 1]}
{"eos_token": "</s>", "eos_token_id": 2}
{"kernel": "sgemm", "key": "M128N128K64"}
{"cache_key": "{h64}"}
{"sha256": "{h64}"}
{"id": "{h8}-{h4}-{h4}-{h4}-{h12}"}
{"session": "2024-01-01_12-00"}
{"signature": "f32[8,128]"}
tensor(token_embedding.weight, shape=[50257, 768])
model.layers.31.self_attn.k_proj.weight: torch.bfloat16 [1024, 4096]
decoder.embed_tokens.weight
encoder.pos_token
attn_key_padding_mask
layers/secret_layer_3
PasswordStrengthNet(in=128, out=1)
TokenMixer(dim=256)
KeyValueMemory(size=64)
SessionEncoder.forward
CookieClusterLoss
SignatureVerificationNet
AuthorEmbedding(1000, 64)
PinholeCamera
step_{d6}.pt
epoch{d2}-{h8}.ckpt
model-00003-of-00012.safetensors
adapter_{h12}.bin
optimizer_rank_{d3}.pt
events.out.tfevents.{d10}.host.{d5}.0
core.{d6}
profile_{h16}.json.gz
trace-{h8}-{h4}-{h4}-{h4}-{h12}.pftrace
/tmp/tmp{a8}/model.py
/dev/shm/sem.{a6}
/tmp/pymp-{a8}
/tmp/torchelastic_{a8}/{h8}-{h4}-{h4}-{h4}-{h12}_{a8}/attempt_0
/proc/{d5}/fd/3
cuda_{h16}.cubin
libtriton.{h8}.so
__triton_launcher.{h16}.so
torch_extensions/py310_cu124/fused_adam
user annotation: load tokens
forward pass 12
backward pass took 3.2 ms
key frames: 12
password field widget
login page loaded in 2.1 s
session warm-up
token bucket refilled
secret detection model v2
signing off
cookie banner classifier
auth service latency: 12 ms
pin tensor to host
otp model: one-time pad cipher
basic usage example
bearer plate temperature: 40.5
api key count: 3
private key path: /k.pem
access key age: 40 d
ssh key added
2024-01-01 12:00:00,123 INFO token 512/2048
[rank3] loss=2.31 tokens=4096 tok/s=81234.5
W0101 12:00:00.000 collective timeout key=0x{h8}
RuntimeError: invalid argument 'key': expected Tensor
KeyError: 'token'
AssertionError: password
ValueError: too many tokens: 5000
HTTP 401 Unauthorized
HTTP/1.1 200 OK
https://x.org/v1/tokens?limit=10
https://x.org/docs/authentication#password
https://huggingface.co/me/secret-model
https://wandb.ai/me/proj/runs/{a8}/overview
http://localhost:6006/?token_view=1
s3://bucket/secret-project/key=7/part.parquet
gs://b/tokens/shard-00001-of-00100.tfrecord
hdfs://nn:9000/user/me/tokens
file:///home/me/password_model.py
""",
}
