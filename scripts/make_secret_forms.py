"""Make ``opscope/core/secrets.json``: the forms of issuers' tokens, from gitleaks' rules, and the names of secrets.

    python scripts/make_secret_forms.py [gitleaks.toml]

Without a file, the detector's rules stay as the data has them, and what is ours is made anew. ``gitleaks.toml`` is ``config/gitleaks.toml`` of gitleaks (MIT licence, copied into the data with its notice),
which its program also contains. Of its rules those are taken that know a token by its form alone. Rules that
need the name of the issuer beside it are left to the names of secrets below; so are rules whose time may grow
with the square of the text. A pattern is written for Python's ``re``, and a token may be longer or shorter than
its issuer makes it today: a long part counts from 16 characters. A rule that takes one of HARMLESS for a token
is left out, and the script says which.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from pathlib import Path
from typing import Final

import tomllib
from secret_places import PLACES

TARGET: Final = Path(__file__).resolve().parents[1] / "opscope/core/secrets.json"
LICENCE: Final = """MIT License

Copyright (c) 2019 Zachary Rice

Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated \
documentation files (the "Software"), to deal in the Software without restriction, including without limitation \
the rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and \
to permit persons to whom the Software is furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial portions of \
the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO \
THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE \
AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF \
CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS \
IN THE SOFTWARE.
"""

#: Forms that the detector lacks, or knows only beside a name: a keyword, and the pattern.
OURS: Final[dict[str, tuple[str, str]]] = {
    "openai-like": (
        "sk-",
        r"sk-(?:(?:proj|svcacct|admin|ant|or|lf|None)-[\w-]{16,}|[A-Za-z0-9]{20,})",
    ),
    "openrouter-key": ("sk-or-", r"sk-or-v1-[a-f0-9]{16,}"),
    "hugging-face": ("hf_", r"hf_[A-Za-z0-9]{16,}"),
    "hugging-face-organization": ("api_org_", r"api_org_[A-Za-z0-9]{16,}"),
    "aws-key-id": (
        "akia asia abia acca aroa aida",
        r"(?:AKIA|ASIA|ABIA|ACCA|AROA|AIDA)[A-Z0-9]{12,}",
    ),
    "slack": ("xox", r"xox[abcdeoprs]-(?=[\w-]{0,40}\d)[\w-]{10,}"),
    "slack-webhook": (
        "hooks.slack.com/",
        r"hooks\.slack\.com/(?:services|workflows|triggers)/[\w/+-]+",
    ),
    "discord-webhook": ("/webhooks/", r"discord(?:app)?\.com/api/webhooks/\d{8,}/[\w-]{16,}"),
    "discord-bot": (".", r"[MNO][A-Za-z\d_-]{23,27}\.[\w-]{6}\.[\w-]{27,}"),
    "telegram-bot": (":aa", r"(?:bot)?\d{6,12}:AA[\w-]{28,}"),
    "teams-webhook": (
        "webhook",
        r"(?:[\w-]+\.webhook\.office\.com/webhookb2|outlook\.office(?:365)?\.com/webhook)/[\w@/-]+",
    ),
    "google-oauth": ("ya29.", r"ya29\.[\w-]{16,}"),
    "google-client": ("gocspx-", r"GOCSPX-[\w-]{16,}"),
    "google-refresh": ("1//0", r"1//0[\w-]{30,}"),
    "google-key": ("aq.", r"AQ\.[\w-]{30,}"),
    "google-api": ("aiza", r"AIza[\w-]{30,}"),
    "nvidia": ("nvapi-", r"nvapi-[\w-]{16,}"),
    "groq": ("gsk_", r"gsk_[A-Za-z0-9]{16,}"),
    "replicate": ("r8_", r"r8_[A-Za-z0-9]{16,}"),
    "extended-private-key": ("prv", r"[xyz]prv\w{60,}"),
    "xai": ("xai-", r"xai-[A-Za-z0-9]{16,}"),
    "together": ("tgp_v1_", r"tgp_v1_[\w-]{16,}"),
    "pinecone": ("pcsk_", r"pcsk_\w{16,}"),
    "langsmith": ("lsv2_", r"lsv2_(?:pt|sk)_\w{16,}"),
    "jina": ("jina_", r"jina_[\w-]{32,}"),
    "tavily": ("tvly-", r"tvly-[\w-]{16,}"),
    "firecrawl": ("fc-", r"fc-[a-f0-9]{32}"),
    "cerebras": ("csk-", r"csk-[a-z0-9]{32,}"),
    "fireworks": ("fw_", r"fw_[A-Za-z0-9]{22,}"),
    "runpod": ("rpa_", r"rpa_[A-Z0-9]{32,}\w*"),
    "kaggle": ("kgat_", r"KGAT_[A-Za-z0-9]{16,}"),
    "wandb": ("wandb_v1_", r"wandb_v1_[\w-]{16,}"),
    "wandb-local": ("local-", r"local-[a-f0-9]{40}"),
    "docker": ("dckr_", r"dckr_[op]at_[\w-]{16,}"),
    "figma": ("figd_", r"figd_[\w-]{16,}"),
    "notion": ("secret_", r"secret_(?=[A-Za-z]{0,42}\d)[A-Za-z0-9]{32,}"),
    "notion-2": ("ntn_", r"ntn_[A-Za-z0-9]{30,}"),
    "new-relic": ("nr", r"NR(?:AK|II|JS|AL|RA)-[A-Za-z0-9]{16,}"),
    "amazon-mws": ("amzn.mws.", r"amzn\.mws\.[\w-]{20,}"),
    "tencent": ("akid", r"AKID[A-Za-z0-9]{24,}"),
    "mailgun": ("key-", r"key-[a-f0-9]{32}"),
    "mailchimp": ("-us", r"[a-f0-9]{32}-us\d{1,2}"),
    "sendgrid": ("sg.", r"SG\.[\w-]{16,}\.[\w-]{16,}"),
    "resend": ("re_", r"re_[A-Za-z0-9]{8}_[A-Za-z0-9]{20,}"),
    "tailscale": ("tskey-", r"tskey-[\w-]{16,}"),
    "vault": ("hv", r"hv[sbr]\.[\w-]{20,}"),
    "vault-old": (
        "s.",
        r"s\.(?=[A-Za-z]{0,23}\d)(?=[A-Z\d]{0,23}[a-z])(?=[a-z\d]{0,23}[A-Z])[A-Za-z\d]{24}(?![\w.(])",
    ),
    "one-password": ("ops_eyj", r"ops_eyJ[\w+/=-]{40,}"),
    "typeform": ("tfp_", r"tfp_[\w.=-]{30,}"),
    "supabase": ("sb", r"sb(?:p|_secret|_publishable)_[\w-]{20,}"),
    "netlify": ("nfp_", r"nfp_[A-Za-z0-9]{16,}"),
    "vercel-blob": ("vercel_blob_", r"vercel_blob_rw_\w{16,}"),
    "vercel": ("vc", r"vc[pkia]_[A-Za-z0-9]{20,}"),
    "render": ("rnd_", r"rnd_[A-Za-z0-9]{20,}"),
    "cloudflare": ("cf", r"cf[uak]t_[A-Za-z0-9_-]{30,}"),
    "contentful": ("cfpat-", r"CFPAT-[\w-]{20,}"),
    "posthog": ("ph", r"ph[cx]_[A-Za-z0-9]{32,}"),
    "stripe-webhook": ("whsec_", r"whsec_[A-Za-z0-9+/=]{16,}"),
    "square": ("sq0", r"sq0(?:atp|csp|idp)-[\w-]{16,}"),
    "braintree": ("access_token$", r"access_token\$(?:production|sandbox)\$\w+\$[a-f0-9]{32}"),
    "mapbox": ("k.eyj", r"[sp]k\.eyJ[\w-]{16,}\.[\w-]{16,}"),
    "facebook": ("eaa", r"EAA[A-Za-z0-9]{60,}"),
    "firebase-messaging": (":apa91b", r"[\w-]{8,32}:APA91b[\w-]{60,}"),
    "nuget": ("oy2", r"oy2[a-z0-9]{43}"),
    "npm": ("npm_", r"npm_[A-Za-z0-9]{16,}"),
    "pypi": ("pypi-", r"pypi-[A-Za-z0-9_-]{32,}"),
    "gitlab": ("gl", r"gl(?:pat|dt|rt|cbt|ptt|ft|soat|imt|agent|oas|ffct)-[\w-]{16,}"),
    "bitbucket": ("at", r"AT(?:BB|CTT3|ATT3)[\w=-]{20,}"),
    "azure": ("q~", r"[\w~.]{3}\dQ~[\w~.-]{16,}"),
    "sourcegraph": ("sgp_", r"sgp_(?:[a-fA-F0-9]{16}_|local_)?[a-fA-F0-9]{16,}"),
    "sentry": ("sntrys_", r"sntrys_eyJ[\w+/=-]{20,}"),
    "grafana": ("gl", r"gl(?:sa|c)_[\w+/=]{20,}"),
    "buildkite": ("bk", r"bk(?:ua|at|ct|aj)_[\w-]{20,}"),
    "circleci": ("cci", r"CCI(?:PAT|PRJ)_\w{16,}"),
    "crates": ("cio", r"cio[A-Za-z0-9]{32}"),
    "planetscale": ("pscale_", r"pscale_(?:tkn|pw|oauth)_[\w.=-]{16,}"),
    "fly": ("fm", r"fm[12][ar]?_[\w+/=-]{40,}"),
    "hubspot": ("pat-", r"pat-(?:na|eu)\d-[\w-]{20,}"),
    "postman": ("pmak-", r"PMAK-[\w-]{20,}"),
    "dynatrace": ("dt0", r"dt0[a-z]\d{2}\.\w{8,}\.\w{16,}"),
    "linear": ("lin_", r"lin_(?:api|oauth)_\w{20,}"),
    "brevo": ("xkeysib-", r"xkeysib-[\w-]{20,}"),
    "terraform": (".atlasv1.", r"\w{10,}\.atlasv1\.[\w-]{20,}"),
    "perplexity": ("pplx-", r"pplx-\w{20,}"),
    "databricks": ("dapi", r"dapi[a-f0-9]{32}(?:-\d)?"),
    "pulumi": ("pul-", r"pul-[a-f0-9]{20,}"),
    "digitalocean": ("do", r"do[opr]_v1_[a-f0-9]{20,}"),
    "shopify": ("shp", r"shp(?:at|ca|pa|ss)_[a-fA-F0-9]{16,}"),
    "heroku": ("hrku-", r"HRKU-[\w-]{30,}"),
    "age": ("age-secret-key-", r"AGE-SECRET-KEY-1[A-Z0-9]{40,}"),
    "json-web-token": ("eyj", r"eyJ[\w-]{8,}(?:\.[\w-]+){1,4}"),
}
#: Rules of the detector whose forms say less than they cost.
LEFT_OUT: Final = {
    "azure-ad-client-secret": "ours needs no neighbours",
    "private-key": "a block of its own in redaction.py",
    "jwt-base64": "base64 of base64",
    "kubernetes-secret-yaml": "by its names",
    "nuget-config-password": "by its name",
    "freemius-secret-key": "by its name",
    "sidekiq-sensitive-url": "a user in a URL",
    "microsoft-teams-webhook": "ours is shorter",
    "facebook-access-token": "needs the issuer's name",
    "flutterwave-public-key": "public",
}
#: What no rule may take for a token.
HARMLESS: Final = (
    "9f8b3c1d7e6a5f4b3c2d1e0f9a8b7c6d5e4f3a2b 4b1d3c1d7e6a5f4b3c2d1e0f9a8b7c6d5e4f3a2b"
    " 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08 550e8400-e29b-41d4-a716-446655440000"
    " s.forward s.abcdefghijklmnopqrstuvwx 20260101T000000.123456 _ZN2at6native29vectorized_elementwise_kernelILi4E"
    " 5d41402abc4b2a76b9719d911017c592 AAAAAwAAAAQAAAAFAAAAAAAAAAAAAAAAAAAAAAAA c2hhcGU9KDEsIDIsIDMpc2hhcGU9KDEsIDIs"
)

#: Names: docs of ``opscope/core/redaction.py`` say what each list does.
WORDS: Final[dict[str, str]] = {
    # whatever the value is, unless it is a switch, a path or an expression
    "sure": "x-honeycomb-team password passwords passwd passphrase passcode passkey pwd psw psk puk कूटशब्द secret secrets credential credentials cred"
    " creds pin mdp apikey apikeys authtoken accesstoken refreshtoken authorization keypass storepass sshpass requirepass"
    " masterauth kennwort geheimnis passe tilgangskode şifreniz şifresi parolanız passordet lösenordet пароля паролем contrasena contrasenia contraseñas contrasenya clave motdepasse segredo segreto secreto парол"
    " секрет пароли hasło haslo wachtwoord wagwoord lösenord losenord passord parola parolă şifre sifre sandi"
    " jelszó jelszo salasana adgangskode heslo geslo lozinka лозинка zaporka parool slaptažodis slaptazodis κωδικός"
    " συνθηματικό סיסמה סיסמא otp totp mfa lykilorð fjalëkalim кодовое пин गुप्तशब्द पासवर्ड รหัสผ่าน گذرواژه"
    " пасворд парола parole geheim geheimwort sekret hemmelig kodeord passwuert contrasinal pasahitza cyfrinair pasfhocal pasvorto гасло iphasiwedi salasõna nenosiri parol şifrə құпиясөз գաղտնաբառ პაროლი পাসওয়ার্ড கடவுச்சொல் పాస్వర్డ్ પાસવર્ડ پاسورڈ toegangscode zugangscode zugangsdaten tajne лозинку құпия",
    # at the beginning of a name as well: passwort_datenbank
    "passwords": "password passwords passwd passphrase pwd passwort kennwort contraseña contrasena contrasenia contrasenya senha"
    " passe motdepasse parolă şifre sifre hasło haslo wachtwoord lösenord losenord passord jelszó jelszo salasana"
    " adgangskode heslo geslo lozinka лозинка парол парола пароль пароли κωδικός סיסמה 密码 密碼 口令 パスワード 비밀번호 암호"
    " mdp zaporka parool slaptažodis lykilorð parola clave geheimnis segredo секрет пасворд συνθηματικό kata_sandi"
    " fjalëkalim slaptazodis סיסמא गुप्तशब्द पासवर्ड รหัสผ่าน گذرواژه",
    # of words written as one: dbpassword, 数据库密码
    "endings": "密码 密碼 口令 密钥 密鑰 暗号 暗証番号 パスワード 秘密鍵 비밀번호 암호 mot_de_passe mật_khẩu kata_sandi"
    " 비번 비밀키 秘钥 私钥 授权码 访问令牌 合言葉 シークレット chave_api clave_api api_chave api_clave jeton_acces jeton_accès jeton_api كلمة_المرور كلمة_السر كلمة_مرور رمز_عبور пароль passwort kennwort contraseña senha password passwd"
    " passphrase passcode pwd secret credentials credential apikey apikeys security_answer seed_phrase recovery_phrase pass_phrase pass_word",
    # also a word with a digit
    "mixed": "jeton token pass pw auth oauth bearer jwt pat токен 令牌 トークン csrftoken xsrftoken sas",
    # only what looks drawn by chance
    "random": "xsrf csrf tok claim chave login key keys cookie cookies signature sig session sessid phpsessid jsessionid aspsessionid sid ключ"
    " schlüssel clé llave hmac",
    # in which form it is, or which of several
    "forms": "value text string str data b64 base64 raw plain env header json literal bytes hex default new old"
    " current prod production dev staging live main primary api secondary backup db database eu us user username bd бд basic",
    # before "token": those of language models
    "language": "pad eos bos unk mask sep cls special image img video audio vision start end stop next last first"
    " begin max min num n per each extra new added prompt output input task class register think separator cache"
    " total public sub word design current text target source draft",
    # before "code"
    "codes": "door gate alarm entry unlock token activation fa pin otp factor verification security auth mfa sms access recovery reset pass login one time 2fa secret",
    # before "pass": whose it is
    "owners": "storage admin db database root user smtp imap ssh ftp sftp become sudo mysql pg postgres redis ldap my proxy mail default"
    " email http basic auth vpn wifi service account host key cert store login ansible jenkins mongo rabbitmq svc ssl",
    # before "key": those of tables
    "tables": "hash sort partition primary foreign cache group order dict index lookup label feature features text image"
    " img input inputs output outputs column field prompt target loss metric data checkpoint map row join query"
    " public state pub recv audio video caption response hot sub vocab routing trace graph node rng random prng jax dispatch"
    " autotune kernel config batch layer param parameter module attn attention past",
    # a last word that says something about a secret
    "about": "file path paths dir folder length len size min max type kind id ids name names field fields policy hash"
    " dim prompt required enabled url uri endpoint manager provider store var hint label attempts count counts expiry"
    " expires ttl reset strength validator sharing santa format version mode method class cls list index idx schema"
    " rotation age bits num op ops mask embedding embeddings dict map rate server scheme config state status error"
    " operator controller driver injector scanner errors info stdin step steps limit budget loss weight bias dropout usage cache pool pair def memory stage manual"
    " input output table column columns arn ref reference source command cmd script helper plugin proj projection"
    " prefix suffix encryption hasher hashers algorithm question regex pattern generator checker fn func callback handler parser encoder node nodes agent primaria primario device devices number numbers app apps policies rule rules requirements",
    # before "secret": the value is a secret's name
    "references": "existing pull",
    # with a password's name, what a message has
    "speech": "is are was were be must should can cannot may will has have had do does don did didn doesn isn match matches"
    " mismatch enter enters type retype repeat confirm confirmation verify reset forgot forgotten change changed update"
    " choose create invalid wrong incorrect required missing expired empty needs need required requires set use used"
    " please failed lost show hide new old current again optional weak short long least your de du da do del mot su sua tu votre ihr dein das neues falsches"
    " ungültiges vergessen bestätigen nicht и или для не",
    # a value that is none
    "bare": "pw pwd passwd password passphrase creds credentials",
    "switches": "nullptr ro rw text inherit include same-origin omit masked filtered scrubbed omitted removed true false none null nil undefined yes no on off auto default required optional missing invalid valid"
    " expired wrong incorrect unset empty hidden redacted skipped enabled disabled ok failed denied str int bytes"
    " string bool boolean number float object any bytearray unknown never always prompt ask stdin files bearer basic digest jwt anonymous new value values utf-8 utf8 ascii latin1 to is and or the for in of option flag argument options flags arguments be if when whether a an it not raise return pass break continue yield del assert import from self lambda await try with set see use using please must should has was will this your no",
}
#: Options of programs whose name does not say that they take a secret: with = only what is attached to it, with
#: : only what follows the user's name, after "login" only there.
OPTIONS: Final[dict[str, str]] = {
    "mysql mysqldump mysqladmin mysqlimport mysqlshow mariadb mariadb-dump": "-p=",
    "sshpass 7z 7za 7zz rar unrar": "-p",
    "unzip zip sqlcmd isql osql bcp ipmitool mosquitto_pub mosquitto_sub ssh-keygen": "-P|-N",
    "ldapsearch ldapadd ldapmodify ldapdelete ldapwhoami ldappasswd": "-w",
    "mongo mongosh mongodump mongorestore cqlsh twine snowsql kinit": "-p",
    "docker podman nerdctl crane helm az oc buildah skopeo": "login -p",
    "redis-cli valkey-cli keydb-cli": "-a|AUTH|auth|--pass",
    "xfreerdp rdesktop": "/p:|-p",
    "openssl": "-k|-K|-pass|-passin|-passout",
    "kaggle": "-v",
    "snmpwalk snmpget": "-A|-X",
    "curl": "-b|--cookie|:-u|:-U|:--cert|:-E",
    "signtool": "/p",
    "schtasks": "/rp",
    "eas": "--value",
    "yubico-piv-tool ykman": "-P|-N|-k",
    "http https xh": ":-a|:--auth",
    "lftp open": ",-u",
    "openai": "-k",
    "doctl": "-t",
    "secret": "-b|--body",
    "plink pscp putty psftp": "-pw",
    "beeline poetry ncftp useradd steghide unlock-keychain create-keychain": "-p",
    "vsql kadmin ldapvi add-generic-password add-internet-password": "-w",
    "pdftotext pdftoppm pdfinfo pdftohtml pdfimages pdftocairo": "-upw|-opw",
    "codecov codecovcli": "-t",
    "ttyd gotty": ":-c|:--credential",
    "coap-client": "-k",
    "gbak isql-fb": "-pas",
    "vncdo vncdotool": "-p",
    "squeue sinfo sacct salloc sbatch srun scancel pdsh clush bsub qsub oarsub": "no -p",
    "choco nuget": "--key|-k|-ApiKey",
    "swift": "-K",
    "sendEmail sendemail": "-xp",
}
#: Options whose value is ``user:password``, and words after which a name and its value follow.
LOGINS: Final = "-u -U --user --proxy-user --userpwd --basic-auth --auth --basic --login"
#: Words after which another command begins.
ENDS: Final = ["\n", "|", "||", "&", "&&", ";"]
SETTERS: Final = "set setx setenv config modify -env -genv %env %set_env env ENV ARG obscure"
#: Names of several words: those that are always the same, and all.
FIXED: Final = r"parola d'ordine|κωδικός πρόσβασης|mot de passe|mật khẩu|kata sandi|كلمة المرور|كلمة السر|كلمة مرور|رمز عبور|palabra clave|पासवर्ड|गुप्तशब्द|कूटशब्द|รหัสผ่าน|পাসওয়ার্ড|கடவுச்சொல்|పాస్వర్డ్|પાસવર્ડ"
PHRASES: Final = (
    r"(?:\w{1,30}-)?(?:passwor[dt]|passwd|passphrase|pwd|kennwort|contraseña|clave|senha|chave|mot de passe|mdp|wachtwoord|lösenord|adgangskode|hasło|heslo|пароль)"
    r"\s(?:for|in|at|on|für|im|am|vom|beim|von|of|de|du|da|do|del|della|di|voor|van|för|till|til|do|od|k|для|от|к)\s"
    r"(?:(?:the|la|le|les|el|os|as|die|der|das|den)\s)?[\w.\-@]{1,40}(?=\s?[:=]|\s(?:is|ist|lautet|est|es)(?:\s|:\s))"
    rf"|{FIXED}"
    r"|(?:api|secret|access|private|account|signing|encryption|subscription) key"
    r"|(?:access|auth|api|bearer|refresh|security|session) token|client secret|pass phrase|one[- ]time (?:code|password|passcode|pin)|kata laluan|нууц үг|پاس ورڈ|(?:verification|security|recovery|backup|login) codes?"
)
#: What surrounds a secret, and what is none.
PATTERNS: Final[dict[str, str]] = {
    # The text between a name and its value: quotes and brackets that end the name, then
    "sign": (
        r"(?P<close>\\*[\"'`]|%22)?\s?(?:\]|\}(?=\s?=)|\)(?=\s?=\s?[(\[]))?[ \t\u200f]{0,8}(?:"
        # password: str =
        r"(?P<typed>(?:\??:\s?|As\s)[A-Za-z&\[](?:[\w.\[\], |&'?]|\(\)){0,40}?\s{0,4}=(?!=)\s{0,4}"
        r"|(?:string|\[\]byte|(?i:n?varchar)\(\w+\)|\[\d{0,4}\])\s{0,4}=\s{0,4}(?=['\"`]))"
        r"|(?P<equal>[:?|+!]{0,2}={1,3}>?[ \t]{0,4}|<-[ \t]{0,4}|%3[dDaA]"
        r"|\bin\s(?=[\[(][rbf]?[\"'])|\bto\s(?=[\"'])|\)?(?<=[\])])\sor\s(?=[rbf]?[\"']))"
        r"|(?P<colon>[:：](?![:=])[ \t]{0,4}|::[ \t]|->\s?)"
        r"|(?P<element>(?:(?:\s[^<>]{0,80})?>\s{0,4}(?:<(?:value|string)>)?"
        r"|</(?:key|name)>\s{0,40}<(?:string|value)>)(?:<!\[CDATA\[)?)(?=[^<>]{1,4096}(?:</|\]\]>))"
        r"|(?P<call>\()(?=[rbfRBF]{0,2}[\"'])"
        r"|(?P<value>[\"',]?(?:[\w:\-]{1,40}=[\"'][^\"'<>\n]{0,80}[\"']\s{1,8}){0,4}"
        r"[^()\n\"']{0,40}[\"']?\n?[ \t,]{0,20}\b(?i:value|default|val|content|data|-v)\b"
        r"[\"']?(?:[ \t]{0,4}[:=][ \t]{0,4}|(?<=[\"'])[ \t]|(?<=[^y]-value) |(?<=-v) ))"
        r"|(?P<comma>,\s{0,40})(?=[rbfRBF]{0,2}[\"'`\\])"  # ('password', '…')
        r"|(?P<prose>\b(?:is|ist|lautet|est|es|é|è|är|jest|was)\b\s?:?[ \t]"
        r"|(?<=[ \t])(?=[^\s<>]{3,200}[ \t]{0,80};?(?:\n|$)))"
        r"(?=\S{0,99}\d)"
        r")"
    ),
    # The beginning and the parts of a value.
    "quote": r"(?:[rbfuRBFUN@$]{1,2}|&)?(\"{3}|'{3}|\\+[\"']|[\"'`]|%22)",
    "join": r"[ \t]{0,8}(?:[+.][ \t]{0,4}|\\\r?\n\s{0,80})?(?=[rbfuRBFU]{0,2}[\"'`])",
    "join inside": r"\s{0,80}(?:\)\s?,\s{0,80}\(|[+,.])?\s{0,80}(?=[rbfuRBFU]{0,2}[\"'`])",
    "block": r"[|>][-+\d]{0,2}[ \t]{0,4}\n((?:[ \t]+[^\n]*(?:\n|$)|\n)+)",
    "items": r"[ \t]*\n((?:[ \t]*-[ \t]+[^\n:]+(?:\n|$))+)",
    "next line": r"[ \t]*\n( +[^\s:#\-][^\n:]*)(?<![,|{(&+?])(?:\n|$)",
    "bare": r"[^\s&;,'\"`}\])\\<](?:\\[ $&;=#!()](?=\S)|[,;](?=[^\W\d]{0,40}\d\w{0,40}(?:\s|$))|[^\s&;,'\"`}\])\\<])*",
    "line": r"[^\n\"'{}]*?(?=\s{1,80}#|[ \t\r]{0,80}(?:\n|$))",
    "several": r"(?:^|\n)[ \t]*\(?(?:[\w.]+,[ \t]*){1,8}[\w.]+$",
    "braces": r"\{[^{}]{0,4096}\}?",
    # The folders of an absolute path.
    "folders": r"(?<![\w/:.])(?:[A-Za-z]:[\\/]|/|~/|\\\\)(?:[^\s:'\",;()<>|]+[\\/])+",
    # A word of a shell, a gap between columns of a help text, or the end of a command.
    "shell word": (
        r"(?<![ \t])[ \t]{4,80}(?=[A-Z])"
        # an escaped quote opens nothing: else each would be followed to the end of the text
        r"|(?:\\\"|\"(?:[^\"\\\n]|\\.)*\"|'[^'\n]*'|(?!\\\r?\n)[^\s\"']|[\"'])+|(?<!\\)\n"
    ),
    # A word in quotes, also as an item of a list: run(["mysql", "-p…"]).
    "quoted": r"(?s)((?:[\w.(=]*\[)?)([\"'])(.*)\2([,\])};:]*)",
    # What may stand before a text in quotes: brackets, and functions that only wrap it.
    "open": (
        r"(?:[A-Za-z_]\w{0,40}(?:\.|::)){0,4}(?:\w{0,20}Secret(?:Str|Bytes|Value)?|Password|str|bytes|bytearray|String|new|from"
        r"|\w{0,6}b64decode|fromhex|unhexlify|\w{0,10}Auth|[fF]ield|ib|Some|Arc|quote(?:_plus)?|update|dict)\(\s{0,80}"
        r"|&\w{1,40}[ ]|[(\[]\s{0,80}|[\"'][^\"'\n]?[\"']\.join\(|\\\r?\n\s{0,80}|(?:default|value)\s?=\s?"
    ),
    # A value that another expression may replace: os.getenv("PW", "…"), getpass() or "…".
    "else": (
        r"(?!\s?[\w.]{0,60}(?:password|passwd|credentials?|secret)\()[^\n'\"#]{0,100}?(?:[\"'][\w.\-]{1,80}[\"']\s?(?:,\s?(?:default\s?=\s?)?|(?:,\s?None)?[)\]]{1,2}\s(?:or|else)\s)|(?:\b(?:or|else)|\|\||\?\?)\s)"
        r"(?=[rbf]?[\"'])"
    ),
    # to the character ~ before the name: a quote, or a semicolon
    "until": r"(?:[^~\n=;&|<>$-]|;(?=[^\s=;&|<>$-]{1,80}[\"']))*(?=~|\Z)",
    "phrase": (
        r"[^\s\"'`(){}\[\]<>][^\s\"'`]*?(?=[,;)]{0,4}[ \t\r]{0,80}(?:\n|$))|"
        r"(?!.{0,200}\s(?:if|else|or|and|in|not|is|for)\s)"
        r"[\w!@$%^&*.\-]+(?:[ ][\w!@$%^&*.\-]+){1,9}(?=[ \t\r]{0,80}(?:\n|$))"
    ),
    "needs words": (
        r"(?:^|\s|[\"'])[-/]{1,2}\w|\b(?:login|authtoken|set|setx|setenv|env|ENV|ARG|config|modify)\s"
        r"|\b(?:AUTH|connect|create)\s"
    ),
    # The name of a header that carries a secret, in place of its value.
    "header name": r"X-[A-Za-z\-]+|(?=.*(?:Token|Auth|Api))(?:[A-Z][a-z]*-){1,2}[A-Z][a-z]+",
    "header": (
        r"(?i)(?<![\w-])(?P<name>(?:proxy-)?authorization|(?:set-)?cookie2?(?=\s{0,4}:\s{0,4}(?!(?:(?:(?:theme|lang|language|locale|mode|consent|tz|timezone|currency|view|path|domain|max-age|expires|samesite)=[\w/.+\-, :]{1,40}|[\w.\-]{1,40}=(?:<[^<>\n]{1,40}>|\$\{?\w{1,40}\}?|\*{3,40}|\.{3})|secure|httponly)(?:;\s{0,4}|(?=[\"'\r\n]|$))){1,12}(?:[\"'\r\n]|$))[\w.\-]{1,80}=)|x-[a-z0-9-]{0,40}?(?:key|token|auth|secret)"
        r"|private-token|api-?key|ocp-apim-[a-z-]{0,30}key)(?P<sign>\s{0,4}:\s{0,4})(?!(?:[A-Za-z]{1,40}\s){4}|[A-Za-z_.]{1,80}\[[\"'])(?=[^\s\"'])"
    ),
    "basic": r"(?i)\b(?:basic|auth\s(?:plain|login))(?:\s|%20)(?P<value>[A-Za-z0-9+/]{8,}={0,2})",
    "bearer": (
        r"(?i)\b(?P<name>bearer|token|(?:api|access|secret)[- _]?key)(?:\s{1,4}|%20|(?<=bearer),\s)"
        r"(?P<value>[\w.~+/=\-]{6,})"
    ),
    # A line of a docstring after the name of a parameter.
    "prose": (
        r"(?is)(?:.*\s)?(?:the|to|if|is|are|for|of|and|or|used|which|that|be|when|with)\s.*|.*[a-z]\."
    ),
    # What stands for a value that is given elsewhere.
    "placeholder": (
        r"(?s)\$\{?\{?.*|\$\(.*|%\(?\w*\)?[sd]|%\(\w+|(?:TEXT|STRING|STR|VALUE|PASSWORD|PATH|FILE|NAME|URL)|%\w+%|<.*>|\[\w*\]|\{\{.*|\{(?!(?=\D{0,40}\d)(?=[^A-Za-z]{0,40}[A-Za-z])[A-Za-z0-9+/=]{8,}\}$).*\}|#[0-9A-Fa-f]{3,8}|:?[*•.xX]{3,}|@\w+@|!\w+(?:\s.*)?|id=[\w.\-]+(?:,.*)?|&lt;.*|\(.*"
        r"|\?[a-z ]+|`\D*|[A-Za-z_\-]{0,16}(?:\.{3}|…|\*{3,}|[xX]{4,}|(?<=[_-])[xX]{3,})\D{0,4}"
        r"|(?i:(?:my|the|some)[-_ ]\D*(?:pass|pw|secret|token|key|cred|value|name|user|account)\D*|(?:your|example|dummy|enter|insert)[-_ ].*|.*[-_ ]your[-_ ].*|.*_here|\w*placeholder\w*"
        r"|(?:bearer|basic|token|digest|negotiate|ntlm|kerberos)(?:\s*|\s[${<%*\[].*|\s[\w:.\-]{0,20}<[a-z].*|\s[a-z]{2,12}\s[a-z]+\s.*))"
        r"|[^$\d]{0,80}\s\$\{?\w+\}?|REDACTED|[A-Z_]{1,40}_(?:PASSWORD|PASSWD|SECRET|TOKEN|KEY)|[A-Z]+(?:_[A-Z]+){3,9}"
        r"|(?:arn|urn):[\w\-]+:.*|ref\+\w+://.*|env:[A-Za-z_]\w*|(?:file|fd):\S+|nogroup|@[A-Z][\w.]+\(.*|(?:op\sread|vault\s(?:kv|read|token)|aws\s\w+\s[a-z]+-|gcloud\s|kubectl\s|bw\sget|doppler\ssecrets|cat\s[/~.$]|openssl\srand|pwgen\s).*|\{\d*|(?:Get-(?:Credential|Content|\w*Secret\w*)|Read-Host|New-Object|Import-Clixml)(?:\s.*)?|[A-Z][A-Z\d]*(?:_[A-Z\d]+)+(?:,[A-Z][A-Z\d]*(?:_[A-Z\d]+)+)+|(?:vault|op|sops|ssm|secret|secrets|env|keyring)://.*|os\.environ[/.\[].*|(?:None|null)\.|[A-Za-z]{2,20}\s(?:\{[^{}]*\}|\.{3})"
    ),
    # Text whose first quote closes another: grep 'KEY=' file, "password='" + x. With a digit it may be a password.
    "closed": (
        r"<[\"']|[\"'](?: [+.%,)]|[+.%,)] )"
        r"|(?=[ )]|[\"'][+.%,)])(?:\D*$|.*(?: [|<>&+%\-]|[+.%,(] ?[\"']?$))"
    ),
    # The dollar sign of a value, unless it is one of a variable's name in capitals or of an expression.
    "dollar": r"(?<![^=:])\$+(?![A-Z_\d]*$|[{($])",
    # A number, or an address in memory.
    "number": r"[\d.,:+\-e]+|v\d+(?:\.\d+)+\w{0,6}|[\d.]+(?:[nuµm]?s|[KMG]i?B)|0x(?:[0-9a-fA-F]{1,8}|(?:7[efEF]|5[56])[0-9a-fA-F]{10})",
    "reference": r"[A-Za-z_][A-Za-z\d_]*(?:\.[A-Za-z_][A-Za-z\d_]*|\[.*|\(.*|::.*|\?\.\w+)+",
    # A path, or an option: add_argument("--password", "-p").
    "path": (
        r"https?://[\w.:\[\]\-]{1,200}(?:/[a-z_./\-]{0,200})?|@?(?:/|\./|\.\./|~/|[A-Za-z]:[\\/]|file:)[\w.\-]{0,40}(?:[\\/][\w.\-]{0,40})*(?::r[ow])?"
        r"|[\w\-]{1,40}\.(?:txt|json|pem|key|py|ya?ml)|-\w|--[A-Za-z_\-]+"
    ),
    # A user's name, after which even "pass" is a password.
    "user": r"(?i)\b(?:user\w*|login|uid)[\"']?\s?(?:[:=]|=>)|^\[[\w.\-]*(?:db|database|smtp|mail|ftp|auth|account|login|server)\w*\]",
    # after a variable for it alone
    "command": r"[^\s\"'()]+ +(?!(?:or|and|if|else|in|is|not|for)\b)[a-z./][\w./\-]*(?:[\s=]|$)",
    # the type of a field, after its name and a colon
    "typed": (
        r"[A-Z]\w*<[\w:&, ]{1,40}>"
        r"|(?:[A-Za-z_]*[a-z][A-Z][A-Za-z_]*|Uint8Array)(?:\[[^\]]*\])?(?:\s?[|,)]|\s=)"
    ),
    "section": r"(?m)^\[[\w.\- ]{1,40}\][ \t]*$",
    "uuid": r"(?i)[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}",
    # A function that names a secret and returns it: get_password("service", "user").
    "reads": r"(?i)(?:^|[._])(?:get|read|fetch|find|load|ask|delete)_?[^.]*$",
    # Any other function of a text in quotes, unless it reads what the text names.
    "call": (
        r"(?i)(?![\w.]{0,60}(?:get|env|input|prompt|ask|open|read|load|path|file|fetch|pop|find|lookup|resolve|secret|client"
        r"|header|query|field|column|key\b|var|config|random|token|choice|require|print|error|assert))"
        r"[a-z][\w.]{0,60}\("
        r"\s{0,80}(?=[rbf]?[\"'](?!-))"
    ),
}
#: Names in one case that end in "pass", "key", "token" or "auth".
JOINED: Final = (
    r"(?:u|admin|app|auth|priv|bind|cert|remote|local|db|database|root|user|smtp|ssh|my|mysql|pg|ftp|ldap|login|oracle|proxy|http|mail|mongo"
    r"|redis|rabbit|rabbitmq|elastic|kafka|mqtt|sftp|ssl|jdbc|dba|sys|svc|service|account|owner|guest|backup|nexus|jenkins"
    r"|minio|grafana|vault|docker|registry|postgres|mssql|maria|mariadb|influx|clickhouse|cassandra|neo4j|couch|solr|ipmi"
    r"|bmc|snmp|radius|rdp|samba|smb|nas|truststore|keystore"
    r"|imap|sql|(?:src|dest|trust|key)?store|(?:src|dest)key|test|wifi|wlan|sudo|vnc|vpn|web){1,3}(?:pass|pw|pwd)"
    r"|\w*(?:admin|api|access|secret|private|master|encrypt|encryption|signing|licen[cs]e|account|auth|service|client|ssh"
    r"|pgp|gpg|aes|rsa|shared|deploy|webhook|consumer|subscription|fernet|wandb|openai)key"
    r"|\w*(?:hf|hub|github|gitlab|git|auth|access|api|refresh|bearer|bot|slack|id|session|csrf|xsrf|middleware|sas"
    r"|security|oauth|user|client|service|npm|pypi|vault|telegram|discord|deploy|secret|push|webhook|jwt|wandb)token"
    r"|(?:basic|redis|proxy|npm)auth|shared_?access_?signature|_?gitlab_session"
)


def convert(rule: str) -> str:
    """Return Go's pattern as Python's: its end may be any character that no token has, its lengths are looser."""
    rule = rule.removesuffix(r"""(?:[\x60'"\s;]|\\[nr]|$)""").removesuffix(
        r"""(?:[\x60'"\s;]|\\[nr]|$|\b)"""
    )
    rule = rule.replace("[[:alnum:]]", "[A-Za-z0-9]").replace(r"\z", r"\Z")
    rule = re.sub(r"(?:\(\?:\[\^[\w+/\\-]+\]\|\\Z\)|\\b)$", "", rule)
    rule = re.sub(r"^(\(\?i\))?\\b", r"\1", rule)
    # the groups are Go's: what is hidden is the whole
    return re.sub(r"(?<!\\)\((?!\?)", "(?:", _longer(_scoped(rule)))


def _scoped(rule: str) -> str:
    """Return the pattern with ``(?i)`` as a group up to the end of the group in which it stands."""
    while (at := rule.find("(?i)")) >= 0:
        depth, end, brackets = 0, at + 4, False
        while end < len(rule) and depth >= 0:
            char = rule[end]
            if char == "\\":
                end += 1
            elif brackets:
                brackets = char != "]"
            elif char == "[":
                brackets = True
            elif char in "()":
                depth += 1 if char == "(" else -1
            end += 1
        end -= depth < 0
        rule = f"{rule[:at]}(?i:{rule[at + 4 : end]}){rule[end:]}"
    return rule


def _longer(rule: str) -> str:
    """Return the pattern with parts of at least 16 characters from 16 on, unless it has no mark of its own."""
    if re.match(r"\(*[0-9a-f]*\[", rule):
        return rule
    return re.sub(
        r"\{(\d+)(?:,\d*)?\}", lambda size: "{16,2000}" if int(size[1]) >= 20 else size[0], rule
    )


def taken(
    rules: list[dict[str, object]],
) -> tuple[list[tuple[str, list[str], str]], dict[str, str]]:
    """Return the forms (rule, keywords, pattern), and why each other rule is left out."""
    forms, why = [], dict(LEFT_OUT)
    for rule in rules:
        name, text = str(rule["id"]), str(rule.get("regex", ""))
        if name in why:
            continue
        # of alternatives, those that know the form
        parts = [
            part for part in re.split(r"(?<=\))\|(?=\\b\()", text) if r"[\w.-]{0,50}?" not in part
        ]
        if not parts or not parts[0]:
            why[name] = "needs the issuer's name" if text else "no pattern"
            continue
        if re.search(r"(?<!\\)\.[*{]|\[\\s\\S|\(\?s", text):
            why[name] = "takes time"
            continue
        pattern = "|".join(map(convert, parts))
        if re.search(rf"(?<![A-Za-z0-9])(?:{pattern})", HARMLESS):
            why[name] = "takes harmless texts for tokens"
            continue
        keywords = [str(word) for word in rule["keywords"]]  # type: ignore[attr-defined]
        # the issuer's name need not stand beside a form that is its own
        forms.append((name, ["pat"] if keywords == ["airtable"] else keywords, pattern))
    return forms, why


def bounded(pattern: str) -> str:
    """Return the pattern of a token, which ends where its letters end, wherever the rule says."""
    return rf"(?<![A-Za-z0-9])(?:{pattern})[\w-]*"


def of_file(path: Path) -> tuple[list[tuple[str, list[str], str]], str, dict[str, str]]:
    """Return the forms of the detector's rules, what they are of, and why each other rule is left out."""
    data = path.read_bytes()
    forms, why = taken(tomllib.loads(data.decode())["rules"])
    rules = [(name, words, bounded(pattern)) for name, words, pattern in forms]
    return (
        rules,
        f"rules of gitleaks; sha256 of its config: {hashlib.sha256(data).hexdigest()}",
        why,
    )


def of_data() -> tuple[list[tuple[str, list[str], str]], str]:
    """Return the forms of the detector's rules that the data has, and what they are of."""
    data = json.loads(TARGET.read_text("utf-8"))
    first, end = data["of the detector"]
    return [(name, words, pattern) for name, words, pattern in data["forms"][first:end]], data[
        "source"
    ]


def hints() -> list[str]:
    """Return the shortest texts one of which is in every name of a secret, in lower case."""
    names = {
        word for kind in ("sure", "endings", "mixed", "random") for word in WORDS[kind].split()
    }
    names |= {"pass", "key", "token", "auth", "signature", "phrase", "secret", "session", "_code"}
    names |= {
        "basic",
        "on code",
        "ty code",
        "ry code",
        "me code",
        *FIXED.split("|"),
    }
    return sorted(name for name in names if not any(other in name for other in names - {name}))


def spaced(words: str) -> list[str]:
    """Return the keywords, in which ␣ is a space."""
    return [word.replace("␣", " ") for word in words.split()]


def text(rules: list[tuple[str, list[str], str]], source: str) -> str:
    """Return the data as its file holds it, with these forms of the detector's."""
    ours = [(name, word.split(), bounded(pattern)) for name, (word, pattern) in OURS.items()]
    places = [(kind, spaced(words), pattern) for kind, words, pattern in PLACES]
    forms = [*places, *rules, *ours]
    data = {
        "source": source,
        "licence": LICENCE,
        "of the detector": [len(places), len(places) + len(rules)],
        "forms": [[name, words, pattern] for name, words, pattern in forms],
        "words": {name: sorted(set(words.split())) for name, words in WORDS.items()},
        "hints": hints(),
        "options": {
            name: ways.split("|") for names, ways in OPTIONS.items() for name in names.split()
        },
        "logins": LOGINS.split(),
        "setters": SETTERS.split(),
        "ends": ENDS,
        "phrases": PHRASES,
        "joined": JOINED,
        "patterns": PATTERNS,
    }
    lines = json.dumps(data, ensure_ascii=False, indent=1)
    return re.sub(r"\n {2,}|\n (?=\])", " ", lines).replace("], [", "],\n  [") + "\n"


def main() -> None:
    """Write the data, and say which rules are left out."""
    rules, source, why = of_file(Path(sys.argv[1])) if sys.argv[1:] else (*of_data(), {})
    TARGET.write_text(text(rules, source))
    for name, reason in sorted(why.items()):
        print(f"left out: {name}: {reason}")
    print(f"{len(json.loads(TARGET.read_text())['forms'])} forms, {TARGET.stat().st_size} bytes")


if __name__ == "__main__":
    main()
