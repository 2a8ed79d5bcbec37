"""Three lists of a fourth writer: lines with secrets, and lines that look like one; what public sources added.

The signs are those of ``secret_lines``, which draws the values. The writer had seen a part of the patterns before the
first of them, and knew the mended patterns before the other two.
"""

from __future__ import annotations

SECRETS = {
    "a fourteenth list": r"""
smbclient //nas01/models -U mlops%«Gletscher77» -c 'get ckpt.bin'
smbget -U 'reader%«{p}»' smb://nas/share/x.tar
rpcclient -U "CORP\\jo%«{p}»" dc01
sudo mount -t cifs //srv/x /mnt -o username=jo,password=«{p}»,vers=3.0
secretsdump.py CORP/admin:«{p}»@10.0.0.4
evil-winrm -i 10.1.1.2 -u Administrator -p '«{p}»'
crackmapexec smb 10.0.0.0/24 -u jo -p «{p}»
x11vnc -display :0 -passwd «opal-moss» -forever
rclone config create box webdav url https://box user jo pass «{p}»
gpg --batch --yes --passphrase «{p}» -c weights.tar
ansible-playbook site.yml -e ansible_become_pass=«{p}»
ansible-playbook site.yml --extra-vars "ansible_ssh_pass=«{p}» ansible_user=root"
ansible-vault encrypt_string '«{p}»' --name 'db_password'
vault kv put secret/train/db username=jo password=«{p}»
vault login -method=userpass username=jo password=«{p}»
etcdctl --user root:«{p}» get /jobs --prefix
influx -username admin -password «{p}» -execute 'show databases'
clickhouse-client -h ch01 --user default --password «{p}» -q 'select 1'
sqlplus scott/«{p}»@//ora01:1521/ORCL @load.sql
expdp system/«{p}»@orcl schemas=ML dumpfile=ml.dmp
rman target sys/«{p}»@prod
db2 connect to MLDB user db2inst1 using «{p}»
bteq .logon td01/dbc,«{p}»
vsql -h vertica01 -U dbadmin -w «{p}» -c 'select 1'
nzsql -host nz01 -u admin -pw «{p}» -d system
hdbsql -n hana:30015 -u SYSTEM -p «{p}» "select 1 from dummy"
hdbuserstore SET MLKEY hana:30015 MLUSER «{p}»
kcat -b k01:9093 -X security.protocol=SASL_SSL -X sasl.username=jo -X sasl.password=«{p}» -L
cypher-shell -a bolt://n4j -u neo4j -p «{p}» 'match (n) return count(n)'
couchbase-cli bucket-list -c cb01 -u Administrator -p «{p}»
arangosh --server.endpoint tcp://a:8529 --server.username root --server.password «{p}»
nmcli device wifi connect LabNet password «{p}»
wpa_passphrase LabNet «{p}» > wpa.conf
iwctl --passphrase «{p}» station wlan0 connect LabNet
swaks --to a@b.c --server mail:587 --auth LOGIN --auth-user jo --auth-password «{p}»
sendEmail -f a@b.c -t d@e.f -s smtp:587 -xu jo -xp «{p}» -m done
net use Z: \\\\srv1\\models «{p}» /user:CORP\\jo
net user trainer «{p}» /add
keytool -importcert -keystore k.jks -storepass «{p}» -alias a
keytool -genkeypair -alias x -keypass «{p}» -keystore k.p12
htpasswd -bc .htpasswd jo «{p}»
htpasswd -nb jo «{p}»
svn checkout https://svn/x --username jo --password «{p}» --non-interactive
bundle config set gems.example.com jo:«{p}»
composer config http-basic.repo.example.org jo «{p}»
cargo login «{A36}»
nuget sources add -Name corp -Source https://n -UserName jo -Password «{p}»
dotnet nuget push x.nupkg --api-key «{A46}» -s https://n
choco apikey --source https://c --key «{u}»
mvn deploy -Dnexus.password=«{p}»
gradle publish -PsonatypePassword=«{p}» -Psigning.password=«{p}»
argocd login cd.example.org --username admin --password «{p}» --grpc-web
kubectl create secret generic db --from-literal=password=«{p}»
kubectl create secret docker-registry reg --docker-username=jo --docker-password=«{p}» --docker-email=a@b
kubectl config set-credentials jo --token=«{A40}»
oc login https://ocp:6443 --token=sha256~«{w43}»
openstack --os-username jo --os-password «{p}» server list
linode-cli linodes create --type g6 --root_pass «{p}» --region eu
swift -A https://auth/v1.0 -U acct:jo -K «{A32}» stat
s3cmd --access_key={U20} --secret_key=«{b40}» ls
ngrok config add-authtoken «{A49}»
cloudflared tunnel run --token «eyJhIjoi{b80}»
sonar-scanner -Dsonar.projectKey=x -Dsonar.login=«{h40}»
snyk auth «{u}»
codecov -t «{u}» -f cov.xml
dvc remote modify --local origin password «{p}»
jupyter lab --ServerApp.token='«{p}»' --no-browser
jupyter notebook --NotebookApp.token=«{h48}»
ttyd -c jo:«{p}» -p 7681 bash
aria2c --enable-rpc --rpc-secret=«{p}»
wget --http-user=jo --http-password=«{p}» https://h/w.bin
yt-dlp -u jo@example.org -p «{p}» https://v/1
transmission-remote nas:9091 -n jo:«{p}» -l
racadm -r 10.0.0.9 -u root -p «{p}» getsysinfo
terraform apply -var 'db_password=«{p}»' -auto-approve
terraform plan -var="admin_token=«{A32}»"
pulumi config set --secret dbPassword «{p}»
knife bootstrap 10.0.0.7 -U ubuntu -P «{p}» --sudo
gitlab-runner register --url https://gl --registration-token «{A20}» -n
./config.sh --url https://github.com/o/r --token «{U29}»
buildkite-agent start --token «{h50}»
pdftotext -upw «{p}» paper.pdf out.txt
qpdf --password=«{p}» --decrypt in.pdf out.pdf
ffmpeg -decryption_key «{h32}» -i in.mp4 out.mp4
steghide embed -cf a.jpg -ef b.txt -p «{p}»
veracrypt --text --password=«{p}» --mount vol.hc /mnt
bitcoin-cli -rpcuser=jo -rpcpassword=«{p}» getblockcount
cast send 0x{h40} --private-key 0x«{h64}»
sentry-cli --auth-token «{h64}» releases new 1.0
wpscan --url https://w --api-token «{A43}»
shodan init «{A32}»
sqlmap -u https://h --auth-type=Basic --auth-cred="jo:«{p}»"
ab -A jo:«{p}» -n 10 https://h/
hey -a jo:«{p}» https://h/
java -jar jenkins-cli.jar -s https://j -auth jo:«{h34}» who-am-i
airflow users create --username jo --role Admin --password «{p}» --email a@b
airflow connections add pg --conn-type postgres --conn-login jo --conn-password «{p}»
wp user create jo a@b.c --user_pass=«{p}»
drush user:password admin "«{p}»"
grafana-cli admin reset-admin-password «{p}»
kcadm.sh set-password -r ml --username jo --new-password «{p}»
samba-tool user create jo «{p}»
kadmin -p admin/admin -w «{p}» -q listprincs
net ads join -U administrator%«{p}»
security unlock-keychain -p «{p}» login.keychain
security add-generic-password -a jo -s ml -w «{p}»
apksigner sign --ks k.jks --ks-pass pass:«{p}» app.apk
osslsigncode sign -pkcs12 c.p12 -pass «{p}» -in a.exe
radtest jo «{p}» radius01 0 «testing{a6}»
check_http -H h -a nagios:«{p}»
POSTGRES_PASSWORD=«{p}»
export PG_PASS='«{p}»'
NEO4J_AUTH=neo4j/«{p}»
MINIO_ROOT_PASSWORD=«{p}»
RABBITMQ_DEFAULT_PASS=«{p}»
REDIS_PASSWORD="«{p}»"
SECRET_KEY_BASE=«{h128}»
JWT_SECRET=«{p}»
SESSION_SECRET="«keyboard-cat-{a8}»"
ENCRYPTION_KEY=«{h64}»
WANDB_API_KEY=«{h40}»
HUGGING_FACE_HUB_TOKEN=hf_«{A34}»
export OPENAI_API_KEY="sk-proj-«{w60}»"
AZURE_OPENAI_KEY=«{h32}»
AWS_SECRET_ACCESS_KEY=«{b40}»
AWS_SESSION_TOKEN=«IQoJb3JpZ2lu{b200}»
CELERY_BROKER_URL=amqp://guest:«{p}»@mq:5672//
SENTRY_DSN=https://«{h32}»@o{d6}.ingest.sentry.io/{d7}
MYSQL_ROOT_PASSWORD: «{p}»
BORG_PASSPHRASE='«{l6} {l7} {l5} {l6}»'
SLACK_SIGNING_SECRET=«{h32}»
TWILIO_AUTH_TOKEN=«{h32}»
STRIPE_SECRET_KEY=sk_live_«{A24}»
CI_JOB_TOKEN=«glcbt-64_{w20}»
SMTP_PASS=«{p}»
CLEARML_API_SECRET_KEY=«{A50}»
NGC_API_KEY=«nvapi-{w64}»
GF_SECURITY_ADMIN_PASSWORD=«{p}» # grafana
set DB_PASSWORD=«{p}»
$env:DB_PASSWORD = "«{p}»"
setenv MYSQL_PWD «{p}»
set -x HF_TOKEN hf_«{A34}»
db:\n  user: jo\n  password: «{p}»\n  port: 5432
apiVersion: v1\nkind: Secret\ndata:\n  password: «{b24}»
stringData:\n  token: "«{A40}»"
env:\n  - name: DB_PASSWORD\n    value: «{p}»\n  - name: LR\n    value: "0.1"
- name: API_TOKEN\n  value: "«{A32}»"
password: >-\n  «{p}»
private_key: |\n  {-}BEGIN RSA PRIVATE KEY{-}\n  «{b64}»\n  «{b64}»\n  {-}END RSA PRIVATE KEY{-}
auth: {username: jo, password: «{p}»}
credentials:\n  access_key_id: x\n  secret_access_key: «{b40}»
smtp_auth_password: '«{p}»'
slack_api_url: https://hooks.slack.com/services/T{U8}/B{U10}/«{A24}»
basic_auth:\n  username: prom\n  password: «{p}»
bearer_token: «{A40}»
services:\n  db:\n    environment:\n      - POSTGRES_PASSWORD=«{p}»
args: ["--user", "jo", "--password", "«{p}»"]
command: redis-server --requirepass «{p}»
wandb:\n  api_key: «{h40}»\n  project: x
hf_token: «hf_{A34}»
registry_password: !vault |\n  $ANSIBLE_VAULT;1.1;AES256\n  «{h80}»
ansible_ssh_pass: «{p}»
users:\n- name: jo\n  user:\n    token: «{A40}»
client-key-data: «LS0tLS1CRUdJTiBSU0Eg{b80}»
"db.password": "«{p}»"
password : «{p}»
passwords:\n  - «{p}»\n  - «{p}»
[database]\nuser = "jo"\npassword = "«{p}»"
[registry]\ntoken = "«{A32}»"
[pypi]\nusername = __token__\npassword = pypi-«{w100}»
[client]\nuser=root\npassword=«{p}»
[default]\naws_access_key_id = {U20}\naws_secret_access_key = «{b40}»
[http-basic.corp]\nusername = "jo"\npassword = "«{p}»"
[connections.dev]\naccount = "x"\nuser = "jo"\npassword = "«{p}»"
api-key = '«{A32}»'
[user]\n\tname = jo\n[github]\n\toauth-token = «{h40}»
[core]\nfernet_key = «{w43}=»
sql_alchemy_conn = postgresql+psycopg2://airflow:«{p}»@pg/airflow
[mail]\npass = {q}«{p}»{q}
[smtp]\nhost: mail\npass: «{p}»
requirepass «{p}»
masterauth «{p}»
rpcpassword=«{p}»
spring.datasource.password=«{p}»
jasypt.encryptor.password=«{p}»
hibernate.connection.password «{p}»
javax.net.ssl.trustStorePassword=«{p}»
<password>«{p}»</password>
<server><id>nexus</id><username>jo</username><password>«{p}»</password></server>
<add key="ApiToken" value="«{A32}»" />
<add name="Db" connectionString="Server=s;Database=d;User Id=sa;Password=«{p}»;" />
<property name="hibernate.connection.password">«{p}»</property>
<property name="password" value="«{p}»"/>
<entry key="db.password">«{p}»</entry>
<Parameter Name="SecretKey" Value="«{A40}»"/>
<string name="api_key">«{A32}»</string>
<bean><constructor-arg name="password" value="«{p}»"/></bean>
<credentials user="jo" password='«{p}»'/>
<wsse:Password Type="x">«{p}»</wsse:Password>
<key>AuthToken</key><string>«{A32}»</string>
<password><![CDATA[«{p}»]]></password>
<Resource name="jdbc/x" username="jo" password="«{p}»" url="jdbc:x"/>
<apikeys><add key="%s" /></apikeys><token>«{A32}»</token>
{"user": "jo", "password": "«{p}»"}
{"auths": {"ghcr.io": {"auth": "«{b40}»"}}}
{"type": "service_account", "private_key_id": "«{h40}»", "client_id": "1"}
{"private_key": "{-}BEGIN PRIVATE KEY{-}\\\n«{b64}»\\\n{-}END PRIVATE KEY{-}\\\n"}
{"access_token": "«{A40}»", "token_type": "Bearer", "expires_in": 3600}
{"refresh_token":"«{A60}»"}
{"Key": "DB_PASSWORD", "Value": "«{p}»"}
{"name": "API_KEY", "value": "«{A32}»"}
{"env": {"HF_TOKEN": "hf_«{A34}»"}}
"{\"password\": \"«{p}»\", \"lr\": 0.1}"
{"SecretString": "{\"username\":\"jo\",\"password\":\"«{p}»\"}"}
{"AccessKeyId": "{U20}", "SecretAccessKey": "«{b40}»", "SessionToken": "«{b80}»"}
{"kaggle": {"username": "jo", "key": "«{h32}»"}}
{"username":"jo","key":"«{h32}»"}
{'login': 'jo', 'passwd': '«{p}»'}
{"headers": {"Authorization": "Bearer «{A40}»"}}
{"headers": {"X-API-KEY": "«{A32}»"}}
{"connectionString": "mongodb+srv://jo:«{p}»@c0.mongodb.net"}
{"webhook": "https://discord.com/api/webhooks/{d18}/«{w68}»"}
{"clientSecret":"«{A32}~{A8}»","tenantId":"{u}"}
{"password": ["«{p}»", "«{p}»"]}
{"pin": "«{d6}»", "otp": "«{d6}»"}
PASSWORD = "«{p}»"
password: str = '«{p}»'
conn = psycopg2.connect(host="h", user="jo", password="«{p}»")
conn = psycopg2.connect("dbname=x user=jo password=«{p}»")
mysql.connector.connect(user='jo', passwd='«{p}»')
engine = create_engine("postgresql://jo:«{p}»@h/db")
client = boto3.client("s3", aws_access_key_id="{U20}", aws_secret_access_key="«{b40}»")
os.environ["WANDB_API_KEY"] = "«{h40}»"
os.environ.setdefault('HF_TOKEN', 'hf_«{A34}»')
os.environ.update({"COMET_API_KEY": "«{A25}»"})
os.environ.update(COMET_API_KEY="«{A25}»")
wandb.login(key="«{h40}»")
login(token="hf_«{A34}»")
huggingface_hub.login("hf_«{A34}»")
model = AutoModel.from_pretrained("m/x", token="hf_«{A34}»")
model = AutoModel.from_pretrained("m/x", use_auth_token="hf_«{A34}»")
openai.api_key = "sk-«{A48}»"
requests.get(u, auth=("jo", "«{p}»"))
requests.get(u, auth=HTTPBasicAuth('jo', '«{p}»'))
requests.post(u, headers={"Authorization": f"Bearer «{A40}»"})
requests.get(u, params={"api_key": "«{A32}»"})
s.login("jo@example.org", "«{p}»")
smtp.login(user, "«{p}»")
ssh.connect("h", username="jo", password="«{p}»")
paramiko.Transport(("h", 22)).connect(username="jo", password="«{p}»")
r = redis.Redis(host="h", password="«{p}»")
app.config["SECRET_KEY"] = "«{p}»"
app.secret_key = b'«_5#y2L{a8}»'
SECRET_KEY = 'django-insecure-«{A50}»'
parser.add_argument("--password", default="«{p}»")
@click.option("--api-key", default="«{A32}»")
def connect(host, password="«{p}»"): ...
password = getpass.getpass() or "«{p}»"
token = os.getenv("TOKEN", "«{A32}»")
token = os.environ.get("MY_TOKEN") or "«{A32}»"
DB = {"default": {"USER": "jo", "PASSWORD": "«{p}»"}}
fernet = Fernet(b"«{w43}=»")
key = b"«{A32}»"; cipher = AES.new(key, AES.MODE_GCM)
jwt.encode({"u": 1}, "«{p}»", algorithm="HS256")
hashlib.sha256(b"«pepper-{a10}»" + pw.encode())
if password == "«{p}»":
assert token != "«{A32}»"
user, password = "jo", "«{p}»"
USERNAME, PASSWORD = ('jo', '«{p}»')
creds = ("jo", "«{p}»")
credentials = pika.PlainCredentials("jo", "«{p}»")
cfg = Config(api_key=SecretStr("«{A32}»"))
API_KEY = (\n    "«{A20}»"\n    "«{A20}»"\n)
password = "«{p}" + "{a6}»"
subprocess.run(["mysql", "-ujo", "-p«{p}»", "db"])
subprocess.run(["sudo", "-S", "ls"], input=b"«{p}»")
child.sendline("«{p}»")  # password
keyring.set_password("svc", "jo", "«{p}»")
os.putenv("API_TOKEN", "«{A32}»")
monkeypatch.setenv("API_TOKEN", "«{A32}»")
print(f"password is «{p}»")
logging.info("using token %s", "«{A32}»")
const apiKey = "«{A32}»";
const client = new Client({ user: 'jo', password: '«{p}»' });
process.env.DB_PASSWORD = '«{p}»';
let token = `«{A40}»`;
String password = "«{p}»";
DriverManager.getConnection("jdbc:mysql://h/d", "jo", "«{p}»");
private static final String SECRET = "«{A32}»";
var connectionString = "Server=h;User Id=sa;Pwd=«{p}»;";
password := "«{p}»"
os.Setenv("API_KEY", "«{A32}»")
let password: &str = "«{p}»";
env::set_var("HF_TOKEN", "hf_«{A34}»");
define('DB_PASSWORD', '«{p}»');
$password = '«{p}»';
$dbpass = "«{p}»";
new mysqli("h", "jo", "«{p}»", "db");
Sys.setenv(GITHUB_PAT = "«ghp_{A36}»")
con <- dbConnect(RPostgres::Postgres(), user = "jo", password = "«{p}»")
ENV["API_TOKEN"] = "«{A32}»"
password => '«{p}»',
#define WIFI_PASSWORD "«{p}»"
char *password = "«{p}»";
local password = "«{p}»"
ALTER USER jo WITH PASSWORD '«{p}»';
CREATE USER 'jo'@'%' IDENTIFIED BY '«{p}»';
GRANT ALL ON *.* TO 'jo'@'h' IDENTIFIED BY '«{p}»';
variable "db_password" {\n  default = "«{p}»"\n}
resource "x" "y" {\n  master_password = "«{p}»"\n}
postgres://jo:«{p}»@pg.internal:5432/ml?sslmode=require
mongodb://root:«{p}»@m1:27017,m2:27017/?replicaSet=rs0
redis://:«{p}»@cache:6379/0
rediss://default:«{p}»@cache:6380
amqps://jo:«{p}»@mq/vhost
mssql+pyodbc://sa:«{p}»@h/db?driver=ODBC+Driver+17
snowflake://jo:«{p}»@acct/db/schema?warehouse=w
Server=tcp:h,1433;Initial Catalog=d;User ID=jo;Password=«{p}»;Encrypt=True
DefaultEndpointsProtocol=https;AccountName=a;AccountKey=«{b86}==»;EndpointSuffix=core.windows.net
Endpoint=sb://x.servicebus.windows.net/;SharedAccessKeyName=Root;SharedAccessKey=«{b43}=»
HostName=h.azure-devices.net;DeviceId=d;SharedAccessKey=«{b43}=»
host=h port=5432 dbname=x user=jo password=«{p}» sslmode=require
jdbc:postgresql://h/db?user=jo&password=«{p}»
jdbc:oracle:thin:scott/«{p}»@h:1521:ORCL
jdbc:sqlserver://h;user=sa;password=«{p}»
ftp://jo:«{p}»@h/pub
sftp://jo:«{p}»@h:22/in
ldap://cn=admin:«{p}»@ldap/
https://jo:«{p}»@git.example.org/x.git
git+https://oauth2:«glpat-{w20}»@gitlab.com/o/r.git
git+https://x-access-token:«ghs_{A36}»@github.com/o/r
https://h.blob.core.windows.net/c/f?sv=2022-11-02&sr=b&sig=«{A43}%3D»
https://b.s3.amazonaws.com/k?X-Amz-Credential={U20}&X-Amz-Signature=«{h64}»
https://storage.googleapis.com/b/k?GoogleAccessId=x&Expires=1&Signature=«{b40}»
Driver={ODBC Driver 18};Server=h;UID=jo;PWD=«{p}»
nats://«{A32}»@nats:4222
smb://CORP;jo:«{p}»@nas/share
socks5://jo:«{p}»@proxy:1080
Authorization: Bearer «{A40}»
authorization: Basic «{b28}==»
Authorization: token «{h40}»
Authorization: ApiKey «{b40}»
Authorization: Digest username="jo", response="«{h32}»"
Authorization: AWS4-HMAC-SHA256 Credential={U20}/x, Signature=«{h64}»
X-Auth-Token: «{A32}»
X-Api-Key: «{A40}»
PRIVATE-TOKEN: «{A20}»
Cookie: sessionid=«{a32}»; csrftoken=«{A32}»
Set-Cookie: JSESSIONID=«{H32}»; Path=/; HttpOnly
X-Vault-Token: «{u}»
X-Amz-Security-Token: «{b80}»
Ocp-Apim-Subscription-Key: «{h32}»
api-key: «{h32}»
curl -H 'X-Auth-Key: «{h37}»' https://h
curl -H "DD-API-KEY: «{h32}»" https://h
grpcurl -H 'authorization: Bearer «{A40}»' h:443 s/m
http h 'X-Token:«{A32}»'
curl --oauth2-bearer «{A40}» https://h
curl -b 'session=«{A32}»' https://h
curl --cookie "auth=«{A32}»" https://h
Proxy-Authorization: Basic «{b24}»
machine api.wandb.ai\n  login user\n  password «{h40}»
machine h login jo password «{p}»
default login anonymous password «{p}»
pg01:5432:ml:jo:«{p}»
*:*:*:jo:«{p}»
//registry.npmjs.org/:_authToken=«npm_{A36}»
//npm.corp/:_password="«{b24}"»
_auth=«{b28}»
jo:$apr1$«{A8}$»«{A22}»
jo:{SHA}«{b27}=»
https://jo:«{p}»@github.com
jo * «{p}» *
jo : EAP "«{p}»"
: PSK "«{p}»"
poll mail proto imap user "jo" password "«{p}»"
set imap_pass="«{p}»"
set smtp_pass = "«{p}»"
psk="«{p}»"
wpa_psk=«{p}»
rcon_password "«{p}»"
IPMI_PASSWORD=«{p}»
username jo privilege 15 secret 5 $1$«{A4}$»«{A22}»
enable secret «{p}»
snmp-server community «{p}» RO
aws configure set aws_secret_access_key «{b40}»
aws rds create-db-instance --master-username jo --master-user-password «{p}»
aws ssm put-parameter --name /ml/db --type SecureString --value «{p}»
aws secretsmanager create-secret --name x --secret-string «{p}»
aws cognito-idp admin-set-user-password --username jo --password «{p}» --permanent
az login --service-principal -u {u} -p «{A34}~» --tenant {u}
az storage blob upload --account-name a --account-key «{b86}==» -f x
az sql server create --admin-user jo --admin-password «{p}»
az webapp config appsettings set --settings DB_PASSWORD=«{p}»
gcloud sql users set-password jo --instance=i --password=«{p}»
gcloud run deploy x --set-env-vars=API_KEY=«{A32}»,MODE=prod
gcloud functions deploy f --set-env-vars "DB_PASS=«{p}»"
ibmcloud login --apikey «{w44}» -r eu-de
heroku config:set SECRET_KEY=«{p}»
fly secrets set DATABASE_URL=postgres://jo:«{p}»@h/d
vercel --token «{A24}» deploy
docker run -e POSTGRES_PASSWORD=«{p}» postgres
docker build --build-arg NPM_TOKEN=«npm_{A36}» .
docker login -u jo -p «{p}» registry
helm install x c --set db.password=«{p}»,replicas=2
helm upgrade x c --set-string auth.rootPassword=«{p}»
sbatch --export=ALL,WANDB_API_KEY=«{h40}» job.sh
srun --export=HF_TOKEN=hf_«{A34}» python t.py
qsub -v API_TOKEN=«{A32}» job.sh
singularity exec --env HF_TOKEN=hf_«{A34}» x.sif python t.py
ray job submit --runtime-env-json='{"env_vars": {"WANDB_API_KEY": "«{h40}»"}}' -- python t.py
env:\n  AWS_SECRET_ACCESS_KEY: «{b40}»\n  REGION: x
- run: echo "«{p}»" | docker login -u jo --password-stdin
variables:\n  DEPLOY_TOKEN: "«gldt-{w20}»"
gh secret set NPM_TOKEN --body «npm_{A36}»
echo "::add-mask::«{A32}»"
withCredentials([string(credentialsId: 'x', variable: 'T')]) { sh "deploy --token «{A32}»" }
Passwort: «{p}»
Kennwort = "«{p}»"
mot_de_passe: «{p}»
mdp=«{p}»
contraseña: «{p}»
clave = '«{p}»'
senha="«{p}»"
wachtwoord: «{p}»
lösenord=«{p}»
salasana: «{p}»
adgangskode: «{p}»
hasło = "«{p}»"
heslo: «{p}»
jelszó: «{p}»
parolă: «{p}»
şifre = "«{p}»"
пароль: «{p}»
密码：«{p}»
密碼: «{p}»
パスワード: «{p}»
비밀번호: «{p}»
كلمة السر: «{p}»
סיסמה: «{p}»
κωδικός: «{p}»
mật_khẩu = "«{p}»"
kata_sandi: «{p}»
parola: «{p}»
令牌: «{A32}»
токен = "«{A32}»"
geheimnis: «{p}»
Zugangstoken: «{A32}»
jeton_acces = "«{A32}»"
{-}BEGIN OPENSSH PRIVATE KEY{-}\n«{b70}»\n«{b70}»\n{-}END OPENSSH PRIVATE KEY{-}
{-}BEGIN EC PRIVATE KEY{-}\n«{b64}»
"{-}BEGIN PRIVATE KEY{-}\\n«{b64}»\\n«{b30}»
{-}BEGIN PGP PRIVATE KEY BLOCK{-}\nVersion: 1\n\n«{b64}»\n=«{b4}»\n{-}END PGP PRIVATE KEY BLOCK{-}
eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.«eyJzdWIiOiIx{b40}.{w43}»
jwt=eyJhbGciOiJSUzI1NiJ9.«eyJpc3MiOiJ4{w60}.{w80}»
{"token": "eyJhbGciOiJSUzI1NiJ9.«eyJpc3MiOiJ4{w60}»
{"password": "«{p}»
--password '«{p}»
DB_PASSWORD=«{p}»…
export HF_TOKEN="hf_«{A20}»
wandb login «{h28}»
Authorization: Bearer «{A18}»...
password="«{p}»...
"api_key": "«{A24}»
ghp_«{A20}»...
AKIA{U16} «{b40}»
sk-ant-api03-«{w30}»…
PuTTY-User-Key-File-3: ssh-ed25519\nPrivate-Lines: 1\n«{b48}»\nPrivate-MAC: «{h64}»
AGE-SECRET-KEY-1«{age58}»
""",
    "a fifteenth list": r"""
mongoexport --uri mongodb://m:27017 --username jo --password «{p}» -c runs
pg_basebackup -d "host=h user=rep password=«{p}»" -D /data
mysqlsh --user root --password=«{p}» --host h
mycli -u root -p «{p}» ml
pgcli postgres://jo:«{p}»@h/ml
litecli --password «{p}» x.db
trino --server https://t:443 --user jo --password «{p}»
presto-cli --server t:8080 --access-token «{A40}»
impala-shell -u jo --ldap_password_cmd="echo -n «{p}»"
hive --hiveconf javax.jdo.option.ConnectionPassword=«{p}»
spark-submit --conf spark.hadoop.fs.s3a.secret.key=«{b40}» job.py
hadoop fs -Dfs.azure.account.key.acct.blob.core.windows.net=«{b86}==» -ls /
sqoop import --connect jdbc:mysql://h/d --username jo --password «{p}» --table t
flink run -Dsecurity.ssl.internal.key-password=«{p}» j.jar
kafka-console-consumer --consumer-property sasl.jaas.config='org.x.PlainLoginModule required username="jo" password="«{p}»";'
nats sub 'x.*' --user jo --password «{p}»
mqttx sub -h mq -u jo -P «{p}» -t x
coap-client -u jo -k «{p}» coaps://h/x
zookeeper-shell zk:2181 addauth digest jo:«{p}»
memcstat --servers m --username jo --password «{p}»
rabbitmqadmin -u jo -p «{p}» list queues
psexec \\\\h -u jo -p «{p}» cmd
wmic /node:h /user:jo /password:«{p}» os get
winexe -U CORP/jo%«{p}» //h cmd
cmdkey /add:h /user:jo /pass:«{p}»
runas /savecred /user:jo "x --password «{p}»"
rsync --password-file=<(echo «{p}») jo@h::m /d
lftp -u jo,«{p}» sftp://h
ncftpput -u jo -p «{p}» h /d f
cadaver https://jo:«{p}»@dav/
davfs2 /mnt/dav jo «{p}»
curlftpfs -o user=jo:«{p}» ftp://h /mnt
sshfs -o password_stdin jo@h:/d /m <<< "«{p}»"
gocryptfs -passwd -extpass "echo «{p}»" c
zip -P «{p}» -r out.zip dir
rar a -hp«{p}» out.rar dir
7z x in.7z -p«{p}»
openssl enc -aes-256-cbc -k «{p}» -in a -out b
openssl pkcs12 -export -passout pass:«{p}» -in c.pem
ssh-keygen -t ed25519 -N '«{p}»' -f k
step ca init --password «{p}»
mkcert -p12-password «{p}»
keybase login jo --paperkey "«{l6} {l7} {l5} {l6} {l6} {l7} {l5} {l6} {l6} {l7} {l5} {l6} {l5}»"
rbw login --password «{p}»
doppler configure set token «dp.pt.{A43}»
infisical login --client-secret=«{h64}»
chamber write svc db_password «{p}»
credstash put db.password «{p}»
aws-vault add x --secret «{b40}»
eksctl create cluster --git-token «{A40}»
flux bootstrap github --token-auth --token=«ghp_{A36}»
velero install --secret-key «{b40}»
crossplane xpkg login --token «{A60}»
skopeo copy --src-creds jo:«{p}» docker://a docker://b
buildah push --creds jo:«{p}» img docker://r/x
crane auth login r -u jo -p «{p}»
oras push --username jo --password «{p}» r/x:v1
cosign sign --key env://K --registry-password «{p}» r/x
notation login -u jo -p «{p}» r
trivy image --username jo --password «{p}» r/x
grype r/x --registry-token «{A40}»
pip install --index-url https://jo:«{p}»@pypi.corp/simple x
poetry config http-basic.corp jo «{p}»
uv publish --token pypi-«{w80}»
conda config --add channels https://conda.corp/t/«{A36}»/ch
mamba install -c https://jo:«{p}»@ch/x y
hf upload m/x . --token hf_«{A34}»
modelscope login --token «{u}»
clearml-task --api-secret «{A50}»
zenml connect --url https://z --username jo --password «{p}»
prefect cloud login -k pnu_«{a36}»
dagster-cloud ci --api-token «agent:x:{h32}»
metaflow configure aws --token «{A40}»
sky launch --env WANDB_API_KEY=«{h40}» t.yaml
modal token set --token-id ak-x --token-secret as-«{A22}»
runpodctl config --apiKey «{A40}»
vastai set api-key «{h64}»
lambda-cloud --api-key secret_x_«{A32}.{A32}»
databricks configure --token <<< dapi«{h32}»
snowsql -a acct -u jo --private-key-passphrase «{p}»
bq query --service_account_credential '{"private_key":"«{A60}»"}'
matlab -batch "setenv('PW','«{p}»')"
stata -e do x.do, password(«{p}»)
sas -sysparm "pw=«{p}»" x.sas
mail -S smtp-auth-user=jo -S smtp-auth-password=«{p}» -s x a@b
mutt -e 'set imap_pass="«{p}»"'
offlineimap -o -k Account:remotepass=«{p}»
telegram-send --token {d10}:«AA{w33}»
ntfy publish --user jo:«{p}» topic hi
apprise -b hi tgram://{d10}:«AA{w33}»/{d9}
pushover --token «{a30}» --user x hi
weechat -r "/set irc.server.x.password «{p}»"
/msg NickServ IDENTIFY jo «{p}»
/oper jo «{p}»
vncdo -s h -p «{p}» key enter
remmina -c rdp://jo:«{p}»@h
guacctl --db-pass «{p}»
nxplayer --password «{p}» s.nxs
virt-install --graphics vnc,password=«{p}» --name x
TELEGRAF_TOKEN=«{A86}==»
HASURA_GRAPHQL_ADMIN_SECRET=«{p}»
MEILI_MASTER_KEY=«{A43}»
N8N_ENCRYPTION_KEY=«{A32}»
RAILS_MASTER_KEY=«{h32}»
NEXTAUTH_SECRET="«{b43}=»"
LDAP_BIND_CREDENTIALS='«{p}»'
FTP_PASS=«{p}»;
export RESTIC_PASSWORD="«{l6}-{l7}-{l5}»"
Environment="API_TOKEN=«{A32}»"
ExecStart=/usr/bin/x --auth-token «{A32}» --port 80
connect_args:\n  password: !!str «{p}»
jobs:\n  x:\n    env:\n      NPM_TOKEN: "npm_«{A36}»"
- set_fact:\n    admin_pass: "«{p}»"
- name: mk user\n  user: name=jo password=«$6${A8}${A86}»
user:\n  name: jo\n  pass: «{p}»
accessKey: {U20}\nsecretKey: «{b40}»
grafana:\n  adminPassword: «{p}»
auth:\n  rootPassword: '«{p}»'\n  database: x
registries:\n  - host: r\n    username: jo\n    password: "«{p}»"
sasl.jaas.config=org.x.ScramLoginModule required username="jo" password="«{p}»";
ssl.keystore.password=«{p}»
quarkus.datasource.password=«{p}»
connection.pwd = «{p}»
[remote "x"]\nurl = https://jo:«{p}»@h/r
['remote "s3"']\n    secret_access_key = «{b40}»
[profile x]\nmfa = no\naws_session_token=«{b120}»
c.NotebookApp.password = 'argon2:«$argon2id$v=19$m=10240,t=10,p=8${b22}${b43}»'
c.ServerApp.token = '«{h48}»'
<Setting Name="Pwd">«{p}»</Setting>
<user name="jo" pwd="«{p}»" roles="a"/>
<setting key="client_secret">«{A40}»</setting>
<wifi><ssid>L</ssid><key>«{p}»</key></wifi>
<jdbc:password>«{p}»</jdbc:password>
{"smtp": {"user": "jo", "pass": "«{p}»"}}
{"db":{"pwd":"«{p}»"}}
{"Credentials": {"SecretKey": "«{b40}»"}}
{"id_token": "eyJhbGciOiJSUzI1NiJ9.«{w60}.{w80}»"}
{"apiToken":"«{A32}»"}
{"password":\n  "«{p}»"}
machine github.com login jo password ghp_«{A36}»
jo:«$6${A8}${A86}»:19000:0:99999:7:::
lan01:5433:*:jo:«{p}»
DB_PASS = b"«{p}»".decode()
kwargs = dict(user="jo", password="«{p}»")
PASSWORDS = {"jo": "«{p}»", "al": "«{p}»"}
self._password = "«{p}»"
self.api_token: Final = "«{A32}»"
api = tweepy.OAuth1UserHandler("{A25}", "«{A50}»")
neptune.init_run(project="x", api_token="«{b100}==»")
comet_ml.Experiment(api_key="«{A25}»")
hvac.Client(url=u, token="«hvs.{w90}»")
pymongo.MongoClient("h", username="jo", password="«{p}»")
cx_Oracle.connect("jo", "«{p}»", "h/orcl")
snowflake.connector.connect(user='jo', password='«{p}»', account='x')
Elasticsearch("https://h", basic_auth=("elastic", "«{p}»"))
Elasticsearch("https://h", api_key="«{b60}»")
InfluxDBClient(url=u, token="«{A86}==»", org="x")
GraphDatabase.driver(u, auth=("neo4j", "«{p}»"))
clickhouse_connect.get_client(host="h", username="jo", password="«{p}»")
client.username_pw_set("jo", "«{p}»")
ftp = FTP("h", "jo", "«{p}»")
imap.login("jo", "«{p}»")
tn.write(b"«{p}»\\r") # password
pexpect.run("ssh h", events={"(?i)password": "«{p}»\\r"})
zf.extractall(pwd=b"«{p}»")
load_pem_private_key(d, password=b"«{p}»")
serializer = URLSafeTimedSerializer("«{p}»")
with_token = partial(get, token="«{A32}»")
@pytest.fixture\ndef password():\n    return "«{p}»"
def get_token():\n    return "«{A40}»"
if (pw := "«{p}»"):
opts = ["--token", "«{A32}»", "--lr", "1"]
os.system("curl -u jo:«{p}» https://h")
!huggingface-cli login --token hf_«{A34}»
%env OPENAI_API_KEY=sk-«{A48}»
%sql postgresql://jo:«{p}»@h/ml
const token: string = '«{A40}»';
axios.get(u, { auth: { username: 'jo', password: '«{p}»' } })
fetch(u, { headers: { 'x-api-key': '«{A32}»' } })
.setPassword("«{p}»")
.password("«{p}»")
.withCredentials("jo", "«{p}»")
@Value("${db.password:«{p}»}")
new NetworkCredential("jo", "«{p}»")
var opts = &redis.Options{Addr: a, Password: "«{p}»"}
Some("«{p}»".to_string()) // password
$conn = new PDO($dsn, 'jo', '«{p}»');
'password' => env('DB_PASSWORD', '«{p}»'),
mysqli_connect("h", "jo", "«{p}»", "d");
password = ENV.fetch("PW", "«{p}»")
conn = LibPQ.Connection("user=jo password=«{p}»")
options(keyring_pw = "«{p}»")
CREATE ROLE jo LOGIN PASSWORD '«{p}»';
ALTER LOGIN sa WITH PASSWORD = N'«{p}»';
COPY x FROM 's3://b' CREDENTIALS 'aws_access_key_id={U20};aws_secret_access_key=«{b40}»'
CREATE SECRET (TYPE S3, KEY_ID 'x', SECRET '«{b40}»');
SET PASSWORD FOR jo = '«{p}»';
Login failed for jo with password «{p}»
ValueError: bad token 'hf_«{A34}»'
DEBUG auth header=Bearer «{A40}»
> Authorization: Basic «{b28}==»
INFO connecting to redis://:«{p}»@cache:6379
Your verification code is «{d6}»
OTP: «{d6}»
Ihr Passwort lautet: «{p}»
Passphrase für k.pem: «{p}»
Neues Kennwort: «{p}»
Mot de passe : «{p}»
Clave de acceso: «{p}»
La contraseña es «{p}»
Senha do banco: «{p}»
Wachtwoord van jo: «{p}»
Пароль от базы: «{p}»
口令：«{p}»
接続パスワード: «{p}»
비번: «{p}»
гасло: «{p}»
chave_api = "«{A32}»"
clé_api: «{A32}»
ключ_api = "«{A32}»"
API-Schlüssel: «{A32}»
X-Session-Token: «{A40}»
X-Gitlab-Token: «{A20}»
X-Registry-Auth: «eyJ{b60}»
Cookie: _xsrf=2|«{h8}|{h32}|{d10}»
Cookie: remember_token=«{A40}»
wss://h/ws?access_token=«{A40}»
https://h/reset?reset_token=«{A32}»
https://h/cb?code=«{A40}»&state=x
https://h/f?X-Goog-Signature=«{h128}»
https://api.telegram.org/bot{d10}:«AA{w33}»/getMe
https://hooks.zapier.com/hooks/catch/{d7}/«{a7}»
{-}BEGIN ENCRYPTED PRIVATE KEY{-}\n«{b64}»\n{-}END ENCRYPTED PRIVATE KEY{-}
eyJhbGciOiJIUzI1NiJ9.«{w30}»
password: "«{p}»
export AWS_SECRET_ACCESS_KEY=«{b22}»...
""",
    "a sixteenth list": r"""
mclient -u monetdb -P «{p}» -d ml
isql-fb -user SYSDBA -password «{p}» h:/d.fdb
gbak -b -user sysdba -pas «{p}» a.fdb b.fbk
dbaccess - <<< "connect to 'ml' user 'jo' using '«{p}»'"
tdload -u jo -p «{p}» -f x.csv
exaplus -c h:8563 -u sys -P «{p}»
cockroach sql --url "postgresql://jo:«{p}»@h:26257/d"
ysqlsh "host=h user=jo password=«{p}»"
tarantoolctl connect jo:«{p}»@h:3301
redis-cli -u redis://jo:«{p}»@h:6379
valkey-cli -a «{p}» ping
keydb-cli --pass «{p}» ping
influxd --admin-password «{p}»
victoria-metrics -httpAuth.username=jo -httpAuth.password=«{p}»
promtool push metrics --http.basic-auth jo:«{p}» http://h
logcli --username jo --password «{p}» query x
telegraf --password «{p}» --config x
fluent-bit -o es -p HTTP_User=jo -p HTTP_Passwd=«{p}»
filebeat -E output.elasticsearch.password=«{p}»
vector --set sinks.x.auth.password=«{p}»
opensearch-cli profile create -n x -u jo -p «{p}»
solr auth enable -credentials jo:«{p}»
kibana-keystore add x.password --stdin <<< '«{p}»'
minio server --access-key jo --secret-key «{p}» /d
mc admin user add local jo «{p}»
s5cmd --credentials-file x --secret-access-key «{b40}» ls
rclone lsd :s3,access_key_id={U20},secret_access_key=«{b40}»:
gsutil -o Credentials:gs_oauth2_refresh_token=1//0«{w60}» ls
azcopy copy a "https://a.blob.core.windows.net/c?sv=2022&sig=«{A43}%3D»"
b2 account authorize {h12} K005«{A27}»
megacmd login jo@x «{p}»
mega-login jo@x.org «{p}»
drive-cli auth --client-secret GOCSPX-«{w28}»
nextcloudcmd -u jo -p «{p}» /d https://h
occ user:add --password-from-env jo <<< «{p}»
irsync -u jo -p «{p}» a i:b
globus login --refresh-token «{w60}»
gfal-copy --bearer «{w80}» a b
ipython -c "import wandb; wandb.login(key='«{h40}»')"
dask-scheduler --tls-key-password «{p}»
ray start --redis-password «{p}» --head
mlflow server --backend-store-uri mysql://jo:«{p}»@h/m
label-studio start --username jo@x --password «{p}»
cvat-cli --auth jo:«{p}» ls
supervisely login --token «{A60}»
roboflow login --api-key «{A20}»
gradio deploy --hf-token hf_«{A34}»
streamlit run x.py -- --db-pass «{p}»
text-generation-launcher --api-key «{A32}»
vllm serve m/x --api-key «token-{a12}»
litellm --master_key sk-«{A20}»
ollama-proxy --auth jo:«{p}»
open-webui serve --secret-key «{A40}»
freeipa-client ipa-client-install -p admin -w «{p}» -U
realm join -U admin x.org <<< '«{p}»'
ldapvi -D cn=admin -w «{p}» -h h
sss_obfuscate -d x «{p}»
sudo chpasswd <<< "jo:«{p}»"
echo "jo:«{p}»" | sudo chpasswd
echo '«{p}»' | sudo -S apt update
printf '%s' '«{p}»' | cryptsetup luksOpen /dev/x y -
echo «{p}» | passwd --stdin jo
usermod --password '«$6${A8}${A86}»' jo
pass insert -e ml/db <<< '«{p}»'
gopass insert ml/db password=«{p}»
keepassxc-cli show -q x.kdbx e <<< «{p}»
secret-tool store --label=x svc y <<< "«{p}»"
op item create --category login password='«{p}»'
lpass login jo@x --password «{p}»
bw login jo@x «{p}» --raw
kwallet-query -w e -f f w <<< «{p}»
proxychains4 -f x curl --proxy-user jo:«{p}» https://h
ssh -o ProxyCommand='corkscrew p 80 %h %p' -o Password=«{p}» jo@h
autossh -M 0 -o "password «{p}»" jo@h
openvpn --auth-user-pass <(printf 'jo\n«{p}»')
openconnect -u jo --passwd «{p}» vpn.x
vpnc --xauth-password «{p}» --ipsec-secret «{p}»
forticlient -u jo -p «{p}» -s h
globalprotect connect -u jo -p «{p}»
wg-quick up <<< "PrivateKey = «{b43}=»"
nmcli con modify x wifi-sec.psk «{p}»
nmcli con modify x 802-1x.password «{p}»
connmanctl config x --passphrase «{p}»
hostapd_cli set wpa_passphrase «{p}»
snmpget -v3 -u jo -A «{p}» -X «{p}» h
ipmitool -I lanplus -H h -U ADMIN -P «{p}» power status
redfishtool -r h -u jo -p «{p}» Systems
idracadm7 -r h -u root -p «{p}» get
ilorest --url h -u jo -p «{p}» list
smcipmitool h ADMIN «{p}» ipmi power status
apcupsd-cgi --community «{p}»
octoprint-cli --apikey «{H32}»
ha-cli --token «eyJ{w30}.{w60}.{w43}»
mosquitto_passwd -b f jo «{p}»
zigbee2mqtt --mqtt.password=«{p}»
esptool --wifi-password «{p}»
arduino-cli compile -D WIFI_PASS="«{p}»"
adb shell settings put global http_proxy_password «{p}»
flutter build apk --dart-define=API_KEY=«{A32}»
xcodebuild -authenticationKeyID x API_TOKEN=«{A32}»
fastlane match --password «{p}»
codemagic-cli-tools keychain add-certificates --certificate-password «{p}»
jarsigner -keystore k.jks -storepass «{p}» a.jar x
sigtool --passphrase=«{p}» x
rpmsign --define "_gpg_passphrase «{p}»" x.rpm
DB_URL=mysql://jo:«{p}»@h/d
ELASTIC_PASSWORD=«{p}»
KEYCLOAK_ADMIN_PASSWORD=«{p}»
ZAMMAD_ELASTICSEARCH_PASS=«{p}»
PLEX_CLAIM="claim-«{A20}»"
TS_AUTHKEY=«tskey-auth-{A12}-{A32}»
CF_API_KEY=«{h37}»
NAMECHEAP_API_KEY=«{h32}»
WORDPRESS_AUTH_KEY='«{A64}»'
DISCORD_TOKEN=«M{A23}.G{w5}.{w38}»
LANGFUSE_SECRET_KEY=«sk-lf-{u}»
MISTRAL_API_KEY=«{A32}»
export LC_WANDB_API_KEY=«{h40}»
POSTGRES_PASSWORD__FILE_CONTENT=«{p}»
sshPassword: «{p}»
remote_user: jo\nansible_password: "«{p}»"
vars:\n  vault_pw: «{p}»
kafka:\n  sasl:\n    username: jo\n    password: «{p}»
secrets:\n  hf: hf_«{A34}»
token: !secret «{A32}»
- "--password=«{p}»"
- -password\n- «{p}»
image_pull:\n  password: |\n    «{p}»
http_headers:\n  X-Scope-Token: «{A32}»
[section]\nPassword = «{p}» ; old
[wifi-security]\nkey-mgmt=wpa-psk\npsk=«{p}»
<entry><string>Password</string><string>«{p}»</string></entry>
<Value Name="Password" Data="«{p}»"/>
<auth><basic user="jo">«{p}»</basic><password>«{p}»</password></auth>
{"args": ["--api-key", "«{A32}»"]}
{"environment":[{"name":"SECRET_KEY","value":"«{p}»"}]}
{"auth": {"bearer": [{"key": "token", "value": "«{A40}»"}]}}
{"username":"jo","password":"«{p}»","remember":true}
{"data":{"password":"«{b24}==»"},"kind":"Secret"}
{"authToken":"«{A40}»","ttl":60}
DB.PASSWORD=«{p}»
engine = sa.create_engine(f"postgresql://jo:«{p}»@{host}/db")
URL.create("postgresql", username="jo", password="«{p}»", host="h")
storage_options={"key": "{U20}", "secret": "«{b40}»"}
fs = s3fs.S3FileSystem(key="{U20}", secret="«{b40}»")
pd.read_sql(q, "mysql://jo:«{p}»@h/d")
token = "hf_" + "«{A34}»"
headers["Authorization"] = "Bearer " + "«{A40}»"
headers = {"x-auth": "«{A40}»"}
session.headers.update({"X-API-Key": "«{A32}»"})
wandb.init(settings=wandb.Settings(api_key="«{h40}»"))
trainer = Trainer(hub_token="hf_«{A34}»")
snapshot_download("m/x", token='hf_«{A34}»')
HfApi(token="hf_«{A34}»")
genai.configure(api_key="AIza«{w35}»")
OpenAI(base_url=u, api_key="«{A32}»")
cfg.db.password = "«{p}»"
setattr(cfg, "password", "«{p}»")
vault["password"] = "«{p}»"
PASSWORD: str = field(default="«{p}»")
password=Field("«{p}»")
if user == "jo" and pw == "«{p}»":
return {"user": "jo", "password": "«{p}»"}
args = parser.parse_args(["--password", "«{p}»"])
runner.invoke(cli, ["login", "--token", "«{A32}»"])
mock.patch.dict(os.environ, {"API_KEY": "«{A32}»"})
{q}Connect with password «{p}».{q}
# password: «{p}»
// TODO remove: apiKey = '«{A32}»'
final String apiKey = "«{A32}»";
val token = "«{A40}»"
export const SECRET = "«{p}»";
"token" to "«{A40}»"
password: '«{p}»' as string
$env:TOKEN='«{A32}»'
SecureString pw = ToSecure("«{p}»");
std::string password{"«{p}»"};
static const char* kApiKey = "«{A32}»";
pw <- "«{p}»"
password = '«{p}»'; % matlab
CALL login('jo', '«{p}»');
Using password: «{p}»
Password for jo is «{p}»
created user jo with password "«{p}»"
Initial admin password: «{p}»
API key created: «{A32}»
Your token: «{A40}»
token=«{A40}» expires=3600
Bearer «{w60}»
X-Access-Token: «{A40}»
X-CSRF-Token: «{A43}=»
X-Hub-Signature-256: sha256=«{h64}»
X-Plex-Token: «{A20}»
Authorization: GenieKey «{u}»
Authorization: Klaviyo-API-Key pk_«{h34}»
Cookie: JSESSIONID=«{H32}»
Cookie: auth_token=«{h40}»; lang=en
https://h/api?apikey=«{A32}»
https://h/x?auth=«{A32}»&y=1
https://h/x?password=«{p}»
https://h/#access_token=«{A60}»&token_type=bearer
ssh://jo:«{p}»@h:22
ldaps://cn=x:«{p}»@h
Zugangskennwort: «{p}»
Passwort für jo: «{p}»
mot de passe de jo : «{p}»
contraseña de la base: «{p}»
la clave es «{p}»
palavra-passe: «{p}»
parola d'ordine: «{p}»
Wachtwoord: «{p}»
Tilgangskode: «{p}»
Пароль: «{p}»
пароль = «{p}»
数据库密码：«{p}»
管理员密码为 «{p}»
パスワードは「«{p}»」です
비밀번호는 «{p}»
mật khẩu: «{p}»
şifreniz: «{p}»
パスワード=«{p}»
""",
    "lines of public sources": r"""
docker run -e POSTGRES_PASSWORD=«dckrPass9» postgres
python t.py --login bob:«lilac-77»
tool --basic ann:«sunflower»
mpiexec -env DB_PASSWORD «sunflower» -n 8 t
x = os.environ.get('DB_PASSWORD') or '«rotegrutze»'
[db]\npass=«kiwifruit»\n
CONTRASENIA=«girasol7»
token: Annotated[str, Option()] = '«{A24}»'
password = typer.Option('«sunflower»', help='x')
(user, password) = ("ann", "«sunflower»")
password = ''.join(['«sun»', '«flower77»'])
<property><name>db.password</name><value>«sunflower»</value></property>
#sshpass -p '«raspberry»' ssh pi@$pi "touch x"
ssh master@98.76.54.32 (password:«IhqSb1Gg»)
98.76.54.32(pw:«IhqSb1Gg»)
password in staging is «IhqSb1Gg»
$pass_word = '«cliffy36&winepress»';
const E2E_PWD = process.env.E2E_PWD || '«admin123»'
tool --password \\n   «hunter2» \\n   --x 1
FLASK_SECRET_KEY=«clave_super_segura»
JWT_SECRET=«jourSecretKex»
auth=(os.getenv("DB_USER", "neo4j"), os.getenv("DB_PASSWORD", "«knowledge-graph»")),
args := []string{"--token", "tok", "--secret", "«s3cr3t»", "--model", "gpt-4"}
machine mail login ann port 993 password «sunflower»
machine mail login ann@b.org port imaps password «sunflower»
machine a.b.org password «sunflower» login ann account x
GET /revoke?token=«qlmnadefddddafdd»&callback=f HTTP/1.1
curl "https://a.b.org/v1?access_token=«lkjhgfdsapoi»"
{"user": "ann", "authpass": "«sunflower»", "privpass": "«rotegrutze»"}
upass: "«sunflower»"
passwd: «Sunflower1»
radius_secret: «Secret1»
DB_PASSWORD="«horse password is battery»"
password = "«Correct-Horse-Token-Key»"
""",
    "values like placeholders": r"""
mysql '-p«$ecretA1»' db
mysql -p'«$ecretA1»' db
bash -c "mysql '-p«$ecretA1»'"
run(['mysql', '-p«$ecretA1»'])
DB_PASSWORD=' «s3cretPw9»'
DB_PASSWORD='  «s3cretPw9» '
password="«Trustno1 »${SUFFIX}"
PASSWORD="«correct horse password battery»"
PASSWORD = "«orbit velvet passphrase tundra»"
password="«Correct-Horse-Battery-Key»"
secret = "«Maple-River-Copper-Secret»"
password = "«abc...xyz1»"
token: "«sk...9aKd83jD»"
password = '«a***7k2b»'
password = "«aXXXX7k2»"
secret = "«--9aKd83jDk2»"
password="«{hunterTwo»"
password="«[hunterTwo»"
tool --password "«<hunterTwo»"
password="«`hunter2`x»"
password="«'+s3cretPw9»"
TOKEN=«0xdeadbeefcafe»
token: «0xdeadbeefcafe»
""",
    "what fresh lists of December showed": r"""
password: «Hunter<2x9»
password = «New-Horizon7»
mysql -p«PASSion9» db
mysql -p«<hunter2x» db
Set-Cookie: «theme=dark; sid={a12}»
PASSPHRASE="«cat sat on mat7»"
std::string passphrase{"«glacial Till 5»"};
ARG GIT_PASSWORD=«Weasel.Wall»
pass=«Powan.Loch9» host=sftp.lab user=drop
_xsrf=«2|{h8}|{h32}|1712930021»
db_passwort: «Zwölf.Eulen»
passwd <<EOT\n«Bluethroat_Ny8»\n«Bluethroat_Ny8»\nEOT
[nas]\ntype = webdav\npass = «Fieldlark;60»
A temporary password is generated for root@localhost: «k>rT4wq?Zb1d»
DJANGO_SECRET_KEY=«x$2!k9(w^vq%7bz@lm3t&ho+e1-yd5jr#0ug6f8nc»
BORG_PASSPHRASE="«my scarf got wet»" borg create ::nightly /srv
SET PASSWORD FOR 'root'@'localhost' = '«h0rnbeam»';
Unseal Key 1: «8{a42}=»
wandb: Appending key to netrc: «{h40}»
MFA secret (base32): «{b30}7A»
recovery codes: «k7crh-4m3qt 9o6kk-jca5d»
x = "«bkua_{h40}»"
INFO auth: sent one-time code «465829» to +1-555-0100
let token = String::from("«{a40}»");
typer.Option("«Lichen*Wolf»", '--passphrase')
: "${DB_PASSWORD:=«Cygnet.Weir»}"
kernel audit: execve a0="mysql" a1="-uroot" a2="-p«Sedge!Wren5»"
wpa_passphrase LabNet '«gray wagtail nest»'
door_code: «1974#»
puk = «20683715»
कूटशब्द = "«abaabeel-Neem7»"
Das WLAN-Passwort im Büro lautet «Brombeere-19»
pwd, host = "«yellowhammer8»", "db3"
user 'svc' created, initial password «mulletGrey52»
Traceback: ValueError: invalid api_key '«{a32}»' for provider mistral
"environ": ["TERM=xterm", "SQL_PASS=«umber;Nine!fox»", "TZ=UTC"]
JWT_SECRET="«the heron waits at low tide»"\nJWT_TTL=60
default_pw = attr.ib(default="«Pumice_Stone»")
select pgp_sym_decrypt(c, '«tarragon vine 6»') from t; -- passphrase
var dbPassword string = `«Hornbeam "x"»`
yubico-piv-tool -a verify-pin -P «739184»
keytool -importkeystore -srckeystore a.p12 -srcstorepass «pepperMint04» -destkeystore b.jks -deststorepass «acornTrail91»
nmcli dev wifi connect labnet password «threewetboots»
vncpasswd -f <<< «rookery5» > ~/.vnc/passwd
# логин etl, пароль «zima_Lesnaya9»
while (tok := "«{h40}»") and not client.login(token=tok): time.sleep(1)
CREDS = [("alice", "«Bramble@Inn»"), ("bob", "«rain-Gauge-3»")]  # (user, password)
flags.DEFINE_string("api_key", "«{a36}»", "API key of the labelling service")
<passPhrase><![CDATA[«salt <and> vinegar»]]></passPhrase>
echo "db1.internal:5432:metrics:etl:«Sundial_Hedge»" >> ~/.pgpass
heroku_key = "«HRKU-{u}»"
ssh gpu-03 "cd /srv/app && DB_PASSWORD=«kiwi\ and\ lime» ./run.sh"
one-time password for kim: «552 918»
https://api.openweathermap.org/data/2.5/weather?q=Oslo&appid=«{h32}»
Generated password for user admin: «{a16}»
A temporary password is generated for root@localhost: «kR2=pw7Lx,qT»
# mot de passe de la base : «Genêt,Falaise3» (ne pas diffuser)
k3s agent --server https://10.0.0.2:6443 --token «K10{h64}::server:{h32}»
LDAPBINDPW=«k7Rn#vale» /opt/slurm/sbin/sync_accounts.py --dry-run
rabbitmqctl change_password celery '«new Pear tree»'
useradd -m -p $(openssl passwd -6 «peachy_keen») annotator
bash -c 'export DB_PASSWORD=«umbra.Finch»; exec python worker.py --queue high'
aws sts get-session-token --serial-number arn:aws:iam::123456789012:mfa/lena --token-code «417093»
pwd_hash = bcrypt.hashpw('«velour Sofa»'.encode(), bcrypt.gensalt())
hmac.new(key=b'«turnip-lantern-oct»', msg=body, digestmod='sha256')
passphrase: &pw "«Quiet/Harbour/88»"\nbackup:\n  passphrase: *pw
StoragePass=«slurm_dbd_Wren»\nStorageUser=slurm
[smtp]\nsmtp_host = mail.example.org\nsmtp_password = «Tern.over.Water»
export PASSWORD=«s\$mmer\ Night9»
WEBHOOK_SECRET='«don'\''t-Tell4»' node server.js
impacket-secretsdump CORP/administrator:'«Iron_Fence!44»'@10.0.0.5
TF_VAR_admin_password=«needle.Haystack» terraform plan
cfg.password = getattr(args, "password", None) or "«Thunder_egg»"
{"ConnectionStrings": {"Default": "Server=sql01;User Id=sa;Password=«Icicle(7)Drip»;"}}
[client]\nuser=backup\npassword=«tea;Leaves3»
ssl.keystore.password=«cactus\=Flower2»
variable "db_password" {\n  type    = string\n  default = "«Walnut.Shelf8»"\n}
account gmail\nhost smtp.gmail.com\nuser bot@gmail.com\npassword «hjrwqnkptbxzmdfa»
La contraseña de la base es: «Montaña#Verde3»
DB_PASSWORT=«Größer&Schöner5»
Please use the following password to proceed to installation:\n\n«{h32}»
Password for the elastic user (reset with `bin/elasticsearch-reset-password -u elastic`): «ryGBaNCxNx-WROlzLVKY»
export SECRET_KEY='«!r!me^#%i(&1b!w_h0ue+_vxqb=n!0a$99%rzv$tby$s*da6us»'
export JWT_SECRET=«my-super-jwt-signing-phrase-88»
Experiment("«{a25}»", project_name="general", workspace="jane")
oathtool --totp -b «JBSWY3DPEHPK3PXP»
le mdp du serveur est «Tr0ub4dor»
κωδικός πρόσβασης: «Thalassa92»
Secret.from_string('«abc-dew»')
kind: Secret\nmetadata:\n  name: x\nstringData:\n  site.conf: «hunter2x»\ntype: Opaque
kind: Secret\nmetadata:\n  name: x\ndata:\n  site.conf: «aHVudGVyMng»=\ntype: Opaque
<password>«{mvnPass9z}»</password>
Sec-WebSocket-Protocol: bearer, «{a22}»
Client('AC{h32}', '«{h32}»')
net use \\srv\share «Passw9x» /user:me
login admin / pass «Xfoo9Bar»
""",
}

ALIKE = {
    "a fourteenth list": r"""
triton_poi_fused_add_mul_native_layer_norm_{h8}
triton_red_fused__softmax_backward_data_{h12}_0d1d2d3de
void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_nn_align8>(Params)
Cijk_Ailk_Bljk_HHS_BH_MT128x128x32_MI16x16x16x1_SN_1LDSB0_APM1_ABV0_ACED0_AF0EM1_AF1EM1
sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas
_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEENS_6detail5ArrayIPcLi1EEEEEviT0_T1_
fused_moe_kernel_{h40}
flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128,64,128,4>>
ampere_sgemm_128x64_tn
nvjet_hsh_192x192_64x4_2x1_v_bz_coopA_TNT
loop_fusion_{h16}
gemm_fusion_dot_{d4}.{h32}
topk_token_kernel<float, 8>
void token_permute_kernel<__nv_bfloat16>(int const*)
moe_align_block_size_token_kernel
get_token_bin_counts_and_mask_{h10}
key_cache_copy_kernel_{h8}
reshape_and_cache_flash_kernel<key_t, 16>
void kv_key_rotary_embedding<128>(key=0x7f{h10})
secret_sharing_matmul_kernel
paged_attention_v2_kernel(key_cache, value_cache)
commit {h40}
git checkout {h40}
--revision {h40}
HEAD is now at {h10} Fix tokenizer
run-id={u}
job_uuid: {u}
sha256:{h64}
image: registry/x@sha256:{h64}
pip install x --hash=sha256:{h64}
md5={h32} weights.bin
etag: "{h32}"
wandb/run-20261130_135400-{a8}
trace_id={h32} span_id={h16}
GPU-{u}
MIG-{u}
--resume={u}
checksum: {h64}
inductor cache key {h52}
fxgraph cache hit for key f{l3}{a48}
"graph_id": "{h40}"
blob {h40}\t4096
partition_key={h16}
cache_key: {h40}
sort_key={h8}
digest={b43}=
model.safetensors 9f{h62}
integrity: sha512-{b86}==
jobId=AKS{d8}
--max_new_tokens 512
tokens=4096
--max-num-batched-tokens=8192
pad_token=<pad>
--pad_token_id 50256
eos_token="</s>"
bos_token: "<s>"
special_tokens={'pad_token': '[PAD]', 'sep_token': '[SEP]'}
mask_token=[MASK]
--token-budget 8
token_budget: 8
num_tokens_per_step=131072
tokens_per_second: 12345.6
--tokenizer meta-llama/Llama-3-8B
tokenizer_config.json
--num-key-value-heads 8
key_dim=64 value_dim=64
head_key: lm_head
--image_token_index 32000
image_token="<image>"
--sort-key length
metric_key=eval_loss
label_key: labels
--prng_key 42
rng_key=(0, 1234)
--password-length 12
--seed 123456
secret_santa.py
--task secret_word_game
python secret_santa.py --players 12
top_k_tokens=50
--tokens-per-sample 2048
prompt_tokens: 1024, completion_tokens: 256
auth_loss=0.31
author=Jo
--author "Jo Smith"
authority=NVIDIA
--pass-rate 0.9
pass_through=True
--bypass-checks
passes=3
--num_passes 2
pass@1: 0.81
keyframes=24
--keypoints 17
keep_tokens=1
tokenized_dir=/data/tok
--drop_token_policy probs
token_type_ids=[0, 0, 1]
--signature serving_default
signature_key="predict"
--session-name test-run-12
session_id=3
cookie_cutter=True
credit_assignment: gae
layer:model.layers.11.self_attn.k_proj
layer:transformer.token_embedding
token_embedding.weight
encoder.key_projection.bias
decoder/block_3/attention/key/kernel
key_padding_mask=None
aten::_scaled_dot_product_flash_attention(query, key, value)
params['token_embed']['kernel']
state_dict["model.embed_tokens.weight"]
self.key = nn.Linear(768, 768)
self.token_type_embeddings
q, key, v = self.qkv(x).chunk(3)
key = self.k_proj(hidden_states)
keys = torch.cat([past_key, key], dim=1)
past_key_values=DynamicCache()
cls_token = self.cls_token.expand(B, -1, -1)
token = next(stream)
tokens = tokenizer.encode("hello world")
tokens = tokenizer("some text", return_tensors="pt")
next_token = torch.argmax(logits, -1)
for token in tokens:
if token == tokenizer.eos_token_id:
assert key in state_dict
pass_manager.run(module)
auth_head = nn.Linear(10, 2)
key: jax.Array
key, subkey = jax.random.split(key)
jax.random.PRNGKey(1234)
key=jax.random.key(0)
range:password_model.forward
nvtx:token 1017
token_shift(x, 1)
password_file=/x
--password-file /etc/pw
--passwordFile=/run/pw.txt
--secret-file ./secrets.yaml
--token-file /var/run/secrets/kubernetes.io/serviceaccount/token
HF_TOKEN_PATH=/root/.cache/huggingface/token
PASSWORD_FILE=/run/secrets/db
POSTGRES_PASSWORD_FILE=/run/secrets/pg
key_file: /etc/ssl/private/k.pem
--ssl-keyfile key.pem --ssl-certfile cert.pem
ssh -i ~/.ssh/id_ed25519 user@node7
-i /home/jo/.ssh/train_key.pem
data/tokens/part-00001-of-00512.bin
s3://bucket/tokens/shard_{d5}.tar
gs://b/keys/{u}/x.npy
/opt/venv/lib/python3.12/site-packages/keyring/backend.py
/src/auth/token_utils.py:128
torch/_inductor/codecache.py:{d4}
/tmp/torchinductor_jo/{l2}/c{l50}.py
/root/.triton/cache/{o52}/kernel.cubin
file:///data/password_strength.csv
datasets/rockyou-passwords.txt
--train_file passwords.jsonl
https://github.com/o/r/tree/{h40}
https://huggingface.co/x/y/resolve/{h40}/model.safetensors
https://example.org/docs#token-auth
http://localhost:8888/lab?token=
https://pypi.org/simple/secretstorage/
https://example.org/search?q=password+reset
scp user@host:/data/x .
git@github.com:org/repo.git
rsync -av jo@node7:/data/ /scratch/
user@10.0.0.1:22
mailto:jo@example.org
ssh://git@example.org:2222/x.git
data = base64.b64decode("AAAAAAAAgD8AAABAAABAQAAAgEA=")
np.frombuffer(base64.b64decode(b"{b64}"), np.float32)
"data": "{b40}=="
<DataArray type="Float32" format="binary">{b64}</DataArray>
image/png;base64,iVBORw0KGgoAAAANSUhEUgAA{b60}
expected = "{h64}"
assert digest == "{h64}"
x = 0x{h16}
torch.manual_seed(0x{h8})
weights_hex: {h64}
array([1.0e-01, 2.3e+00])
EXPECTED_SHA = "{h40}"
b"\\x00\\x01\\x02\\x03"
"payload": "{b80}"
password=os.environ["PASSWORD"]
password = args.password
--password $PASSWORD
-p "$DB_PASS"
PASSWORD=${PASSWORD}
password: ${{ secrets.DB_PASSWORD }}
password: {{ vault_db_password }}
token: <your token>
API_KEY=YOUR_API_KEY
api_key: "xxxxxxxx"
--token ***
password=****
Authorization: Bearer $TOKEN
Authorization: Bearer <token>
"password": null
password: ""
token=None
secret: true
"token": false
password = getpass.getpass("Password: ")
token = get_token()
token = Path("token.txt").read_text()
password=%s
password = "{}".format(pw)
f"password={password}"
password=None,
password: Optional[str] = None
def f(token: str, secret: bytes) -> bool:
os.getenv("HF_TOKEN")
os.environ.get("WANDB_API_KEY")
secretKeyRef:\n  name: db\n  key: password
valueFrom:\n  secretKeyRef:\n    name: db-secret\n    key: pw
arn:aws:secretsmanager:eu-west-1:{d12}:secret:db-AbCdEf
projects/p/secrets/db/versions/latest
op://vault/item/password
imagePullSecrets:\n- name: regcred
password_hash_rounds=12
token = request.headers["X-Auth-Token"]
password is required
Invalid password for user jo
error: missing api key
Enter password:
[sudo] password for jo:
Password must be at least 12 characters
The token count is 4096
Token indices sequence length is longer than 512
Using default tokenizer.
401 Unauthorized: bad credentials
pwd=/home/jo
PWD=/home/jo/x
cd $(pwd)
mysql -u root -p db
ssh -p 2222 jo@node7
docker run -p 8080:80 x
docker run -p 127.0.0.1:8888:8888 -u 1000:1000 x
mkdir -p /data/out
nmap -p 22,80 h
psql -h h -p 5432 -U jo db
rsync -e "ssh -p 2222" a b
python -m http.server -p 8000
tar -P -xf x.tar
cp -p a b
git log -p -u
nvidia-smi -q -d POWER -i 0
perf stat -e cycles -p 1234
py-spy record -p 4321 -o x.svg
taskset -p 0x3 1234
kill -9 1234
sort -k 2,2 -u x
grep -w token file.py
curl -u : --negotiate https://h
nsys profile -t cuda,nvtx -w true python t.py
ncu -k regex:gemm -c 5 python t.py
lsof -p 999 -u jo
useradd -m -u 1001 jo
chown -R jo:ml /data
ps -u jo -p 77
sudo -u jo -- python t.py
smbclient -L //nas -N
etcdctl get token/budget
kubectl get secrets -n ml
kubectl describe secret db
vault kv get secret/train/db
gh secret list
aws sts get-session-token --duration-seconds 900
gcloud auth print-access-token
huggingface-cli whoami
wandb login --relogin
docker login ghcr.io
npm whoami
ffmpeg -pass 1 -i in.mp4 -p 2 out.mp4
x264 --pass 2 -o a b
date -u +%s
torchrun --rdzv-id 77 --rdzv-endpoint node7:29500 t.py
mpirun -np 8 -x NCCL_DEBUG=INFO t
srun -p gpu -u -n 8 python t.py
sbatch -p a100 -A proj-ml job.sh
screen -S train -p 0
iperf3 -c h -p 5201 -P 8
make -j8 -w
xargs -P 8 -n 1
gzip -k x
tcpdump -w out.pcap -s 0
rclone copy a:b c:d -P
wget -O x -U Mozilla https://h
tokenizer:\n  pad_token: "<pad>"\n  bos_token: "<s>"
key: value
- key: gpu\n  value: a100
labels:\n  app: secret-santa
"key": "ctrl+shift+p"
<key>CFBundleName</key><string>Opscope</string>
<add key="LogLevel" value="Debug"/>
<property name="batch.size" value="64"/>
[tool.ruff]\nselect = ["S105", "S106"]
# noqa: S105 hardcoded-password-string
tokens_total{model="x"} 4096
{"usage": {"prompt_tokens": 12, "total_tokens": 20}}
{"token": "Ġthe", "id": 262}
{"tokens": ["▁Hello", ",", "▁world"]}
{"added_tokens": [{"id": 0, "content": "<unk>"}]}
"eos_token": {"content": "<|im_end|>", "lstrip": false}
{"key": "model.layers.0", "dtype": "bf16"}
auth_enabled: true
auth: none
authentication: kerberos
session: "train-7"
sessions: 4
signature: "(x: Tensor) -> Tensor"
public_key: ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{b43} jo@h
ssh-rsa AAAAB3NzaC1yc2E{b80} jo@h
{-}BEGIN CERTIFICATE{-}\n{b64}\n{b64}\n{-}END CERTIFICATE{-}
{-}BEGIN PUBLIC KEY{-}\n{b64}\n{-}END PUBLIC KEY{-}
fingerprint: SHA256:{b43}
host_key_checking = False
foreign_key=user.id
primary_key: id
passive: true
compass: 12
passenger_count=4
pinned_memory=True
pin_memory: true
spin=0.5
mapping={'a': 1}
opinion: "good"
Schlüssel: wert
clave_primaria: id
llave = True
mots: 512
标记: 512
""",
    "a fifteenth list": r"""
triton_per_fused_native_layer_norm_{h8}_5
void at::native::(anonymous namespace)::indexSelectLargeIndex<float, long, unsigned int, 2, 2, -2, true>
cutlass_80_wmma_tensorop_s161616gemm_f16_16x16_128x2_tn_align8_{h16}
fmha_v2_flash_attention_bf16_64_128_S_qkv_128_sm90_kernel
_attn_fwd_0d1d2d34d5d6de7de8de9c10de_{h12}
ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)
wgrad_alg0_engine<float, 128, 5, 5, 3, 3, 3, false, 512>
aten::embedding(f32[32000,4096], i64[8,512], padding_idx=-1)
TokenDispatcher.token_permutation
ProfilerStep#12
Optimizer.step#AdamW.step
autograd::engine::evaluate_function: AddmmBackward0
## Call CompiledFxGraph f{a51} ##
jit_train_step/transpose(jvp(Model))/blocks_3/attn/key/dot_general
hlo_module=jit_step,program_id={d3}
key_value_cache_update<8, 128>
rope_key_kernel_{d4}
session_step_{d6}
dequant_w4a16_{h8}
moe/router/token_drop
password_mlp.fc1.weight
secret_encoder.layer.0
token_mixer.dwconv
cookie_dataset.map
auth_net/conv2d_1
squeue -u jo -p gpu_a100
sinfo -p h100_long
srun -u -p a100x8 -n 16 python t.py -p exp_v2
sbatch -p gpu_v100 -A ab1234 job.sh
ssh -l jo -p 2222 node7
docker run -u jo -p 8080:80 img:v1.2
docker build -t repo/img:v1.2-Beta3 .
docker compose -p proj1 up -d
mysql -u root -p ml_db1
mysql -u root -p
psql -U jo -d ml1 -p 5432
sudo -u jo python train.py -p exp_v2b
sudo -u jo nice -n 10 ./run
pdsh -l jo -w node[1-8] uptime
kubectl -n ml1 get pods -w
kubectl config set-context x1 --namespace ml2
git config user.name Jo2
git config remote.origin.url git@h:a/b2.git
git -c user.name=Jo2 commit -m x1
conda config --add channels conda-forge
conda install -c pytorch:v2Beta x
npm config set registry https://r1/
poetry config virtualenvs.create false
gunicorn -c conf.py app:create_app2
uvicorn app.main2:App3
python -m pkg.train2 -c configs/Exp12.yaml
mkdir -p Exp-Run12/ckpt_3
make -C build2 -w
grep -w Foo1 x.c
tar -cpf a1.tar d
sed -i 's/a1/B2/' f
perl -pe 's/x1/Y2/'
nvcc -arch=sm_90 -p x1.cu
ncu --kernel-id ::regex:gemm.*:2 x
nsys profile -p cuda,nvtx x
py-spy dump -p 12345
torchrun --nnodes 2 --rdzv_conf timeout=900 t.py
deepspeed --hostfile h1 t.py --token_dropping
accelerate launch --main_process_port 29501 t.py
mpirun -x LD_LIBRARY_PATH -np 4 ./a
samba-tool user list
net user jo
wp user list --role=admin1
airflow users list
vault token lookup
vault auth enable userpass
gh auth status
gh auth login --web
gcloud auth login
aws sso login --profile dev1
terraform init -backend-config=env/Prod1.hcl
git init repo_with_a_rather_long_name2
poetry init --name some-rather-long-project-name-3
shodan search apache
nmcli device wifi list
radtest --help
htpasswd -c f jo
pdftotext -layout a1.pdf
ffmpeg -i a.mp4 -pass 2 -b:v 1M b1.mp4
openssl version -a
security find-identity -v
rclone config show box1
bundle config set path vendor/b1
hdbsql -V
keytool -list -keystore k1.jks
curl -u $USER:$PASS https://h
curl -H "Authorization: Bearer ${TOKEN}" https://h
mosquitto_sub -t a/b1 -v
pad_token_id: 0\nbos_token_id: 1
tokens_per_batch: 4M
max_tokens = 4096
token_dropout=0.1
key_size=256
keys: [input_ids, labels]
keyword: foo1
signature: name(x1)
session_timeout: 3600
auth_method: iam
auth_type: oauth2
password_policy: strong1
password_min_length=12
secret_name: db-creds-1
secret_ref: projects/x1/secrets/y2
credentials: ~/.aws/credentials
credentials_path="/x/y1.json"
credential_helper = osxkeychain
api_key_env: OPENAI_API_KEY
api_key=os.getenv("K1")
token = tok.decode([1, 2])
token = "Ġhello"
token = vocab[id1]
self.password = password
password=password,
pw = params["w1"]
pin = Pin(13)
pin_memory_device="cuda:0"
code: 200
exit code: 137
error code=CUDA_ERROR_700
login: jo
login = jo2
user: jo1
username=jo1
host=h1 port=5432 user=jo
[default]\nregion = us-east-1
sha256sum: {h64}
"checksum": "{h40}"
"revision": "{h40}"
"_commit_hash": "{h40}"
uuid: {u}
"run_id": "{A8}"
"experiment_id": "{d18}"
trace: 00-{h32}-{h16}-01
wandb: Run data is saved locally in wandb/run-20261130_1405-{a8}
version = "2.9.0+cu129.git{h7}"
torch==2.9.0 --hash=sha256:{h64}
x = np.array([0x1f, 0x2e])
MAGIC = b"\\x89PNG"
"blob": "{b80}=="
expected = "{h32}"
seed = 0x{h8}
key = (a1, b2)
for key in ("a1", "b2"):
cache[key1] = v2
sort(key=lambda r: r.t1)
"hello world"  # token ids
x = "abc1"  # secret sauce
y = foo("Layer12")  # password model
logging.info("token %s", tok)
logging.info("key %s took %s", "layer1", "12ms")
print("{} tokens".format("n1"))
f"token {t}"
assert "token" in s1
raise ValueError("token expired after 3600s")
The secret of fast kernels: tiling
password reset link sent to jo1
key insight: fuse 3 ops
Token usage: 4096/8192 (50%)
first pass: 12ms, second pass: 11ms
user create took 12ms
auth 12ms
register file spill 24bytes
init done in 3s
connect node17-ib0-rank-0003-of-0016-long
cuda graph key 0x{h12}
launch key {h8}
a * b2 * c
x * y1 *
/home/jo/secret_project1/a.py
/data/token_2048/part1
/x/auth/login.py:12
https://h/a1/tokens/list
https://h/x?page=2&key=name
https://h/x?signature=v1
http://h:6006/?darkMode=true#timeseries&run=a1
s3://b1/secret_santa/x2
s3://model-bucket-2/x@v3
github.com/o/r2@v1.2.3
actions/checkout@v4
docker://r/x2@sha256:{h64}
nvcr.io/nvidia/pytorch:25.10-py3
org/model-7b:q4_K_M
corp/img:tag2@latest
DOMAIN\\jo
jo@CORP.EXAMPLE.ORG
file1:12:34
node7:29500
a:b:c1
12:34:56.789
""",
    "a sixteenth list": r"""
triton_tem_fused_mm_relu_{h10}
_Z17rms_norm_quantizeIN3c108BFloat16EEvPT_{h6}
sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x64x16_stage4_{h4}
void flash::compute_attn_1rowblock<128, 128, false>
pcie_allreduce_oneshot_{d3}
MemcpyPeer(P2P)
aten::scaled_dot_product_attention(bf16[8,32,4096,128])
aten::_efficient_attention_forward
TorchDynamo Cache Lookup
ProfilerStep*
layer:net.tokenizer.embed
layer:decoder.auth_gate.linear1
layer:blocks.12.attn.key.weight
model/session_encoder/gru1/kernel
Conv2DBackpropFilter-op{d4}
Default/network-WithLossCell/_backbone/token_emb2
/layers.3/attn/k_proj/MatMul_output_0_cast
range:epoch 3 batch 12 tokens 4096
range:secret stage 2
step 12: password_reset_model
fused_bias_gelu_token{d2}
nccl:all_gather 1048576B
cudaGraphLaunch 0x{h12}
Thunk:#name=key_fusion.12,hlo_op=fusion.12#
jit(train_step)/while/body/key_bias/add
memset 256B on 0x7f{h10}
custom_call_target="__cublas$gemm"
token_bucket_sort_kernel<256>
verify_token_tree_kernel<float>
sample_next_token(f32[8,32000])
srun -p a100 -u python t.py
squeue -u jo2 -p h100x8
sacct -u jo -S 2026-11-30
salloc -p gpu1 -t 1:00:00
qsub -q gpu2 -P proj1 job.sh
bsub -q v100 -P acct2 ./x
bsub -u jo@x.org -P proj12x ./x
condor_submit -u jo job.sub
oarsub -p gpu_model2 ./x
kubectl exec -it pod1 -c main -- bash
kubectl create configmap c1 --from-literal=lr=0.1
kubectl port-forward svc/x 8080:80
docker run -e LR=1e-3 -u 1000:1000 img:t1
docker exec -u jo c1 ls
docker tag img:v1 repo/img:V2b
podman run --userns=keep-id:uid=1000 img
singularity exec --nv img_v2.sif python t.py
apptainer run docker://img:v2
conda create -n env2 python=3.12
conda run -n env2 python -c "print(1)"
pip install torch==2.9.0 -c constraints2.txt
pip install 'x[dev]>=1.2,<2'
uv run -p 3.12 t.py
poetry add x@^1.2.3
npm i a@1.2.3 -w pkg1
yarn add @a/b@npm:c@1.0.1
cargo test -p crate_a1
go test -run TestToken1 ./...
bazel test //a/b:token_test1
cmake -DCMAKE_BUILD_TYPE=Release -S . -B b1
ninja -C out/Rel1
gcc -O3 -pg -c a1.c
ln -s a1 b2
find . -user jo -name 'a1*'
chmod -R u+w d1
rsync -a --exclude=tokens1 a b
scp -P 2222 a1 jo@h:b2
ssh -p 2222 -l jo h1
ssh -L 8888:localhost:8888 jo@h
mount -o user=jo,uid=1000 //h/s1 /m
screen -S s1 -X quit
tmux new -s tok1
watch -n 1 nvidia-smi
numactl -C 0-7 -m 0 ./x1
perf record -g -p 1234
strace -u jo -p 1234
gdb -p 1234
htop -u jo
top -u jo -p 1234
kill -s USR1 1234
crontab -u jo -l
su jo -c "ls a1"
passwd jo
id -u jo1
curl -o out1 https://h/a1
curl -X POST -d 'x=1' https://h
curl -w '%{http_code}' https://h
wget -P dir1 https://h/f2
git log --author=jo -p file1
git push origin v1.2
git show {h10}
dvc pull -r s3remote2
mlflow run . -P alpha=0.5
mlflow run . -P lr1=1e-4
python -m http.server 8000
python t.py --keys a1 b2 --auth-mode none1
python t.py --tokens-file t1.bin --key-frames 12
python t.py -p configs/a1.yaml -w 8
python t.py --passes 3 --pw-layers 2
python t.py user=jo1 model=gpt2
python t.py data.key=a1 model.token_dim=64
accelerate launch -m pkg.t1 --secret_number 7x
sphinx-build -W -b html d1 o2
pytest -k "token and not auth1" -p no:cacheprovider
pytest -p xdist2 -n 4
token_len=12\npad_id=0
use_auth: true
auth:\n  mode: none1\n  users: 3
basic: tok1
plain text1
digest: sha256:{h64}
digest md5:{h32}
keys:\n- a1\n- b2
key = "layer1.weight"
{"key": "a1", "value": "b2c3"}
{"name": "tokens", "value": "4096"}
{"name": "hidden_size", "value": "4096"}
{"token_ids": [1, 2]}
{"pass": 1, "fail": 0}
{"user": "jo1", "group": "ml2"}
{"auth": null}
{"type": "bearer"}
- name: N_TOKENS\n  value: "4096"
- name: SECRET_DIR\n  value: /run/secrets1
secretName: tls-cert-1
secret:\n  secretName: db1
password_hash: bcrypt
PASSWORD_HASHERS = ["django.contrib.auth.hashers.Argon2PasswordHasher"]
AUTH_USER_MODEL = "users.User2"
validators = [MinLen8("password")]
def password_strength(pw): return len1(pw)
def pad_token(self): return "<pad_1>"
def token(self): return self._tok1
def get_token_count(x): return "n1"
self.pass1 = Pass("fuse1")
passes = ["pass1", "pass2"]
with open("token1.txt") as f:
with token_stream(x1) as t:
use tokenizer2
using token bucket2 algorithm
using 4 tokens per step
user jo using gpu7
user jo with node17
username: jo1
logged in as jo1
login jo1
set max_token 4096
set token_dim to 64
set secret level3
add token type2 embedding
insert key a1b2
update password policy
edit token list2
put the token in slot3
add_token("<x1>")
set_password_policy("strict", "lvl2")
getpass("User: ", "jo1")
authenticate(user1, perms2)
connect("h1", 29500)
connection = connect("h", "u")
client = Client("http://h1:8080")
hash("a1")
hashlib.sha256(b"a1").hexdigest()
hmac_ok = True
sig = inspect.signature(f1)
cache_key = f"{a}_{b1}"
cache_key = hashlib.md5(x).hexdigest()
key = "x" * 32
key = f"layer{i}"
x = "{h8}"  # seed
"{h40}"  # revision
"a1b2c3d4e5"  # name of the run
print("step %s took %s" % ("s1", "12ms"))
print("secret %s" % name1)
logging.warning("token %s is not in vocab", "Ġfoo1")
ERROR: authentication failed for user jo1
WARNING: token limit 4096 exceeded
INFO: password file /etc/x1 read
INFO: session 12 opened
session: {u}
session id {d8}
connection id {h16}
job {h12} done
epoch 1 key metrics: loss=0.1 acc=0.9
throughput 12345 tokens/s/gpu
sha: {h40}
ref: refs/heads/fix-token-2
Merge branch 'secret-scan-2'
wandb: run jo/proj1/{a8}
hf://datasets/a1/b2@{h40}
ftp://ftp.x.org/pub/a1
jdbc:postgresql://h1:5432/d2
tcp://10.0.0.1:29500
file://a1/b2@v3
redis://h1:6379/0
https://x.org/a1/hooks/readme2
https://x.org/t/topic-12345/678
https://x.org/webhooks/docs2
https://h/?sig=none1
AKIAIOSFODNN is a prefix
id_rsa.pub
known_hosts
ssid: LabNet1
<key>CFBundleVersion</key><string>12</string>
<key>UIFileSharing</key><true/>
{-}BEGIN CERTIFICATE REQUEST{-}\n{b64}
* item1 *
a * b2 *
x : RSA "text"
dict(user="jo1", group="ml2")
mfa: false
pin: 13
PIN_COUNT=40
pinned=true
otp_app = erlang2
""",
    "lines of public sources": r"""
p.add_argument('--password', help='the password of the data base')
generate.py --password <secret>` (writes `passwordfile`)
hashed = utils.hash(x)\nUser(email=e, hashed_password=hashed)
`hf_token="hf_..."` to `from_pretrained()`
export API_KEY="$(grep -E '^DEMO_API_KEY=' .env | cut -d= -f2-)"
link = ftplib.FTP(host=tgt, user=username, passwd=password)
sshpass -p `node show $1 -a password | awk '{print $2}'` ssh x
export WANDB_API_KEY="${WANDB_API_KEY:-your_wandb_api_key}"
API_TOKEN_HEADER = "X-Admin-Token"
init(api_token='ANONYMOUS')
secretAccessKey:\n  process.env.AWS_SECRET_ACCESS_KEY ||\n  Constants.AWS_SECRET_ACCESS_KEY,
server.login("admin")
parser.add_argument('--new-password', '-p', help='New password')
connect("host='"+conf['host']+"' password='"+conf['password']+"'")
"Authorization": "JWT  " + str(token),
"basicAuthB64": basic_auth_b64,
is_forget_password: boolean, onCompleted: () => void) => void;
[Token(Token = "0x2000083")]
secret: privateConfig.AUTH0_CLIENT_SECRET,
#   -Dpassword             Which password will be used
-Dusername={Apigee username} -Dpassword={Apigee password}
-Duser=<Admin User> -Dpassword=<WebLogic Password>
wpa_passphrase `cat config.txt | head -n1` `cat config.txt | tail -n1`
"Wrong credentials": "Неверный логин или пароль"
password: Пароль для генерации ключей шифрования
"SELECT * FROM chefs WHERE usuario = @usuario AND contraseña = @contraseña"
txtpasswd = New System.Windows.Forms.TextBox
CLERK_SECRET_KEY=sk_test_***
// STRIPE_SECRET_KEY=sk_test_xxxxxxxxxxxxxxxxxxxxxx
t.Errorf("--token value not redacted: %q", out[1])
<label htmlFor="password">Passwort</label>
<item label="Mot de passe" :rules="rules.password">
password: { label: "Mot de passe", type: "password" },
const PRIVATE_KEY = fs.readFileSync("private.pem", "utf8");
self.password = price
self.password = bcrypt.hashpw(\n    password.encode('utf-8'), bcrypt.gensalt())
- name: MINIO_SECRET_KEY\n  value: {{ pluck .Values.S3_SECRET_KEY | first }}
secretKey: process.env.MINIO_SECRET_KEY!,
env "PGPASSWORD=$POSTGRES_PASSWORD" psql -U "$POSTGRES_USER" -d postgres
openai.api_key = 'Set-your-OpenAI-API-key'
self.password = config.get_var("providers.copernicus.credentials.cdse_password")
mysql -h $MYSQL_HOST -u$MYSQL_USER -p$MYSQL_PASSWORD -e "SELECT 1"
# HF_TOKEN = "hf_xxx"
assert '$env:HF_TOKEN = "<' not in text
processorArchitecture='x86' publicKeyToken='{h16}' language='*'
it('attaches Authorization: Bearer when Supabase has a session', () => {
All endpoints require the `Authorization: Bearer api::<token>` header.
Auth: `Authorization: Bearer $CLOUDFLARE_API_TOKEN`. Zone-scoped, so every
val groupPasswds: MutableList<Passwd>,\nval selectPasswd: Passwd? = null,
sudo: ALL=(ALL) NOPASSWD:ALL
export const PASSWORD_POLICIES = [\n  { id: 1, name: 'Default Strong Policy', minLen: 8 }
Repository secrets:\n   - `WEBHOOK_URL`\n   - `BEARER_TOKEN`\n
clean-secrets:\n	find . -name "node_modules" -type d\n
"IAMUserPassword": "arn:aws:iam::aws:policy/IAMUserPassword",
TOKEN_TYPE_ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"
"AWS::Demo::ApiKey": "3d104ea0be48564b",
headers={'Authorization': f'Bot {self.value}', 'Accept': '*'},
a string of user and password for 'proxy-authorization: basic ...'
kafka://[USER:PASSWORD@]ADDRESS[:PORT]
"git://[path[:]][ref@]to/file" (but the
rsync_password=dict(type='str', no_log=True),
'base_passwd': 'base-passwd'
api_key: os.environ/AZURE_KEY
- Authorization: Set from service account token file
raise E("Invalid key. api_key=None.")
url: redis://default:REDACTED@a.b.org:6379
tool --username NAME --password USER_PASSWORD --tenant TENANT
passphrase: VALUE_SPECIFIED_IN_NO_LOG_PARAMETER
masked: the secret values for display as key-value pairs
'existing_passphrase': passphrase,
'privateKey': key_dump,
secret_value=decrypted_value,
""",
    "values like placeholders": r"""
label_password: "Passwort vergessen"
"password": "Password must be at least 8 characters long",
password: "Passwords do not match",
error_password = "Password is too short"
errors.password = "Password is required";
password: "Confirm your password"
password: "Repeat password"
password: "New password"
"password": "Current password",
placeholder password="Enter password"
<input name="password" placeholder="Type your password" />
password_label = "Password (again)"
mysql -u root -p$MYSQL_PWD db1 < dump1.sql
mysql -u root -p"$MYSQL_ROOT" db1
sshpass -p $PASS ssh user1@host2
7z a -p${ARCHIVE_PW} out1.7z dir
grep '^DB_PASSWORD=' .env1 | cut -d'=' -f2
grep 'PASSWORD=' config1.ini
grep -E 'TOKEN=' app1.log | head -5
url = "postgres://u:" + pw1 + "@h/db"
q = "password='" + pw1 + "'"
q = "password='" + row[1] + "' and id=" + x2
cmd = 'mysql --password="' + pw2 + '" db'
print("token=" + tok1)
print("token='%s'" % tok1)
log("secret=", value1)
API_KEY = "sk-..."
API_KEY = "sk-xxxxxxxx"
HF_TOKEN = "hf_xxxxxxxxxxxx"
password = "********"
password: "..."
token = "abc..."
secret: xxxx
WANDB_API_KEY=<your-key>
train.py --token <your token> --steps 10
train.py --api-key [key] --lr 1e-3
train.py --secret {name} --n 4
parser.add_argument("--password", "-p", help="the password")
parser.add_argument("--secret", "--client-secret")
parser.add_argument("--token", "--hf-token", default=None)
run --password --verbose
API_KEY_NAME = "X-Api-Key"
api_key = "X-Api-Key"
apiKey: "X-Auth-Token"
auth_token = "X-Subject-Token"
header token: "X-Vault-Token"
password = "${DB_PASSWORD}"
auth = "Bearer ${TOKEN}"
password: "$DB_PASSWORD"
token=0x7f3a12345678
cancel_token=0x7f8c001a2b30 state=1
key=0x1f
token: 0x10
stream token 0x55d0c8a1b2c0
password='{password}'
f"password={pw1!r}"
password = "{{ vault_pw }}"
password="<redacted>"
credentials: "Invalid username or password"
"secret": "`SECRET` variable"
docker run -e TOKEN=$TOKEN2 img:1
curl -H "Authorization: token $GH_TOKEN" https://h/x1
subprocess.run(["mysql", "-p" + pw1])
{\"tokens\": 12, \"name\": \"a b\"}
x --p {\"a\": \"b\"}
""",
    "what fresh lists of December showed": r"""
backward pass=12.4ms forward pass=6.1ms
WANDB_MODE=offline WANDB_API_KEY= python train.py
ParamSpec password: Text, required
$cred = Get-Credential -UserName admin
"Server={0};User Id={1};Password={2};"
secrets: inherit
--secrets OPENAI_API_KEY,HF_TOKEN
-u nobody:nogroup
credentials: include
secret_key: env:SECRET_KEY
openssl rsa -in k.pem -passin env:KEY_PASS
Cookie: sessionid=<hidden>
machine api.wandb.ai login user password <API key>
pub struct Auth { pub token: String, pub secret: Vec<u8> }
--password @/run/secrets/pw
docker run -v /srv/secrets:/run/secrets:ro img
image: ghcr.io/lab/secret-operator:v1.2.0
API_KEY=`op read op://ml/openai/credential`
--pin-cpus 0-15
passwd = nullptr;
secret: "@Microsoft.KeyVault(SecretUri=https://kv.vault.azure.net/secrets/db)"
mysql -u USER -pPASSWORD DATABASE
requirepass ""
password = keyring.get_password("artifacts", "mira")
password=%(DB_PASSWORD)s
docker login -u ci --password-stdin registry.corp:5000
mysql -u root -p<password> metrics
  --db-password TEXT  Password of the metrics database  [required]
Set-Cookie: sessionid=<redacted>; Path=/
Set-Cookie: theme=dark
password: ref+vault://kv/db#/password
HF_TOKEN=[MASKED] python train.py
secrets:\n  - db_password\n  - hf_token
existingSecret: mlflow-postgresql
proxy_pass http://127.0.0.1:8000;
Authorization: Negotiate
Authorization: Bearer [REDACTED]
Cache restored from key: linux-py311-pip-{h64}
AUTH_PASSWORD_VALIDATORS = [{'NAME': 'django.contrib.auth.password_validation.MinimumLengthValidator'}]
conda pin: numpy=1.26.*
pin=gpio17
apiKey: process.env["API_KEY"]
docker build --secret id=hf_token,src=$HOME/.hf_token -t train .
gcloud secrets versions access latest --secret=db-pass
Secret.from_name("huggingface-secret")
kind: ConfigMap\ndata:\n  site.conf: a
""",
}
