"""Where a secret stands that has no form and no name of its own: after a command, between others, in a function.

``make_secret_forms.py`` puts these patterns into opscope's data.
"""

from __future__ import annotations

from typing import Final

#: Programs that read a password from what comes to them.
READERS: Final = (
    r"sudo\s+-S|kinit|cryptsetup|chpasswd|(?:vnc|smb|rpc)?passwd|pass\s+insert|smbpasswd|(?:docker|podman|wrangler|gh|fly|flyctl|aws)\s[^\n|<]{0,80}?secrets?"
    r"|[^\n|<]{0,200}(?:password[-_]stdin|--with-token|passphrase-fd|--token|auth\s+login)"
)
#: Words for a password, before which a comma stands.
SAID: Final = (
    r"password|passwd|pwd|pw|pass|passwort|kennwort|contraseña|senha|пароль|mot de passe|mdp|wachtwoord|hasło|heslo|parola"
    r"|lösenord|adgangskode|şifre|密码|密碼"
)
#: Indented lines, after those that a template fills.
BLOCK: Final = r"(?:[ \t]+[^\n]*(?:\{\{|\$\{)[^\n]*\n){0,40}(?P<value>(?![ \t]{1,80}[^\n]{0,200}(?:\{\{|\$\{))[ \t]+[^\n]+(?:\n[ \t]+[^\n]+)*)"
#: Secrets known by where they stand: what is found, keywords one of which is in such a text, the pattern.
PLACES: Final[tuple[tuple[str, str, str], ...]] = (
    (
        "private key",
        "private",
        r"(?s)-----BEGIN[ A-Z0-9_-]{0,60}PRIVATE KEY(?: BLOCK)?-----.*?(?:-----END[ A-Z0-9_-]{0,80}-----|\Z)"
        r"|Private-Lines: ?\d+\s.*?(?:Private-MAC: ?\w+|\Z)",
    ),
    # of a URL all before the last @, or only what follows the user's name
    (
        "URL",
        "://",
        r"(?<![A-Za-z0-9])(?:https?|s3|ftp)://(?=[a-zA-Z]{0,256}\d)(?P<value>[^/\s?#'\"@:]{6,256}:?)@",
    ),
    ("URL", "://", r"://(?=[a-zA-Z]{0,64}\d)(?P<value>[^/\s?#'\"@:]{16,256})@"),
    (
        "URL",
        "://",
        r"(?<![A-Za-z0-9])[a-z][a-z0-9+.\-]{0,30}://(?![\[\\])(?P<value>[^/\s?#'\"]*:[^/\s'\"]*)@",
    ),
    # a password with a slash, not a port with a path
    (
        "URL",
        "://",
        r"(?<![A-Za-z0-9])[a-z][a-z0-9+.\-]{0,30}://(?P<value>[^/\s?#'\":@]{2,64}:(?!\d{1,5}/|/)(?=[^\s@]{0,256}\d)"
        r"[^\s'\"@?#]{1,256})@(?!sha256)",
    ),
    ("URL", "thin:", r"\bthin:[^/\s]{1,64}/(?P<value>[^@\s]+)@"),
    (
        "user and password",
        "@",
        r"(?<![\w/@.:])(?!mailto:|xmpp:|sips?:|acct:)[A-Za-z][\w.+\-]{0,63}:(?=[^\s@]{0,256}[A-Za-z])(?P<value>[^\s/@:'\"]{3,256})@(?!sha256)(?=[A-Za-z\[]|\d{1,9}\.\d)(?![\w/]{1,60}\.py\b)",
    ),
    # .pgpass
    (
        "user and password",
        ":",
        r"(?m)^(?!\d{1,200}:)[\w.\-*]+:(?:\d{2,5}|\*):[\w*.\-]+:[\w*.\-]+:(?!\d{1,200}$)(?P<value>\S+)(?=[ \t]{0,80}(?:#|$))",
    ),
    (
        "netrc",
        "password",
        r"\b(?:machine\s+\S{1,200}|default)\s+(?:(?:login|port|account)\s+\S{1,200}\s+){1,3}password\s+"
        r"(?P<value>(?!<[A-Za-z]{1,80}\s)\S+)",
    ),
    ("netrc", "password", r"\bmachine\s+\S{1,200}\s+password\s+(?P<value>\S+)\s+login\s"),
    ("netrc", "password", r"(?m)^[ \t]*login\s+\S{1,200}\s+password\s+(?P<value>\S+)$"),
    ("login", "login", r"\blogin\s{1,4}(?P<value>[A-Za-z0-9_\-]{20,})"),
    (
        "login",
        "login( auth( authenticate(",
        r"(?i)(?:\.|\bcall\s)(?:auth|login|authenticate)\((?:(?:[\"'][^\"'\n]{1,80}[\"']|[\w.]{1,80}),\s?|(?=.[^\"'\n]{0,200}\d))[\"'](?P<value>[^\"'\n]{4,80})"
        r"[\"']\s?[,)]",
    ),
    (
        "login",
        "login( authenticate( token( key(",
        r"\b(?:\w{0,20}login|authenticate|(?:save|set)_\w{0,10}(?:token|key))\(\s?[\"'](?P<value>[\w.\-]{16,200})[\"']",
    ),
    (
        "option",
        "mysql sshpass mariadb",
        r"[\"'](?:mysql\w*|sshpass|mariadb)[\"'][, ][^\]\n]{0,200}?[\"']-p(?P<value>[^\"'\n]+)",
    ),
    (
        "named value",
        "password identified pragma",
        r"(?i)\b(?:password(?!\s{1,4}=)|pragma\s+key|identified\s+(?:with\s+\w{1,40}\s+)?by)\s+(?:password\s+)?(?:=\s?)?(?P<quote>[\"'])(?P<value>[^'\"\n$<{%*][^'\"\n]{2,200})(?P=quote)",
    ),
    (
        "login",
        "/pass: /passw /pwd:",
        r"(?i)(?<!\S)/(?:pass|passwd|password|pwd):(?P<value>[^\s\"']{3,})",
    ),
    (
        "login",
        "auth( credential( credentials( auth1",
        r"\b(?:[A-Z]\w{0,30})?(?:Auth|Credentials?|OAuth1\w{0,20})\(\s?[\"'][^\"'\n]{1,80}[\"'],\s?[\"'](?P<value>[^\"'\n]{3,80})[\"']\s?[,)]",
    ),
    # of a client that takes its key first
    (
        "login",
        "client( experiment( api( bot( openai( anthropic( cohere( replicate( pinecone( github( gitlab( groq("
        " mistral( together( init( session(",
        r"\b(?:(?:openai|anthropic|cohere|replicate|comet_ml|pinecone|groq|mistralai|together|deepgram|assemblyai|tavily"
        r"|serpapi|slack_sdk|telegram|telebot|discord|stripe|sendgrid|github|gitlab|notion_client|airtable|voyageai|ai21"
        r"|neptune|wandb)\.\w{1,40}|\w{0,20}(?:OpenAI|Anthropic|Cohere|Pinecone|Github|Gitlab|Groq|Mistral|WebClient"
        r"|APIClient|ApiClient|TeleBot|Experiment))\(\s?[\"'](?P<value>(?=[A-Za-z_\-]{0,60}\d)[\w\-]{24,200})[\"']",
    ),
    # a word of its own place after a command's words
    (
        "login",
        "rabbitmqctl alias http-basic config",
        r"\b(?:rabbitmqctl\s(?:change_password|add_user|authenticate_user)\s\S{1,200}|mc\s(?:alias\sset|config\shost\sadd)"
        r"\s\S{1,200}\s\S{1,200}\s\S{1,200}|http-basic\.\S{1,200}\s\S{1,200})\s(?:(?P<quote>[\"'])(?=[^\"'\n]{1,80}[\"']))?(?P<value>(?(quote)[^\"'\n]+|[^\s$<]\S*))",
    ),
    (
        "login",
        "minio(",
        r"\bMinio\((?:\s?[\"'][^\"'\n]{1,200}[\"'],){2}\s?[\"'](?P<value>[^\"'\n]{3,200})[\"']",
    ),
    # webhooks, and channels of conda: the address is the secret
    (
        "URL",
        "hook",
        r"https?://[^\s\"']{0,200}?/(?:web)?hooks?/(?:v\d/|services/)?(?P<value>(?=[A-Za-z_\-]{0,80}\d)[\w\-]{20,}(?:[@/][\w\-]{8,}){0,4})",
    ),
    (
        "URL",
        "hook",
        r"hook[\w/]{0,80}\?[^\s\"'#]{0,200}?(?<=[?&])(?:access_token|key|token)=(?P<value>[\w\-]{16,})",
    ),
    (
        "URL",
        "token=",
        r"(?i)[?&](?:(?:access|auth|refresh|api|id|oauth|private|session)_?)?token="
        r"(?P<value>(?![\w\-]{0,200}token\b)[\w\-.~%]{10,})",
    ),
    ("URL", "/t/", r"://[^\s/\"']{1,256}/t/(?P<value>(?=[A-Za-z_\-]{0,80}\d)[\w\-]{16,})(?=/)"),
    # an authorization that is taken once for a token
    (
        "URL",
        "code= ticket= samlresponse= assertion=",
        r"(?i)[?&](?:code|ticket|samlresponse|assertion)=(?P<value>(?=[a-z_\-.]{0,80}\d)[\w\-.%/+=]{20,})",
    ),
    # of crypt and argon2, and of frameworks and directories
    (
        "password hash",
        "$",
        r"\$(?P<value>(?:[1567y]|gy|2[abxy]|apr1|argon2(?:i?d|i)|scrypt|pbkdf2[\w-]{0,12}|bcrypt[\w-]{0,12})\$"
        r"(?:[\w,=.-]{1,60}\$){0,3}[A-Za-z0-9./+]{16,}={0,2}(?:\$[A-Za-z0-9./+]{16,}={0,2})?)",
    ),
    (
        "password hash",
        "pbkdf2 bcrypt scrypt argon2 {s {md5 {cr {pb",
        r"(?:\b(?:pbkdf2|bcrypt|scrypt|argon2)[\w:]{0,30}\$|\{(?:S?SHA\d{0,3}|S?MD5|CRYPT|PBKDF2[\w-]{0,12})\})"
        r"(?P<value>[^\s\"']{16,})",
    ),
    # the private part of a JSON web key
    (
        "private key",
        "kty",
        r"[\"'](?:d|dp|dq|qi|k)[\"']\s?:\s?[\"'](?P<value>[\w-]{22,})[\"']",
    ),
    (
        "login",
        "hmac.new( jwt. signer( serializer( aes.new( chacha20.new(",
        r"\b(?:hmac\.new|\w{0,30}Signer|\w{0,30}Serializer|(?:AES|ChaCha20)\.new|jwt\.(?:en|de)code\([\w.\[\]]{1,80},"
        r"|jwt\.(?:en|de)code\(\{[^{}\n]{0,200}\},|jwt\.(?:sign|verify)\([\w.\[\]]{1,80},)\(?\s?(?:key\s?=\s?)?b?[\"'](?P<value>[^\"'\n]{6,200})[\"']",
    ),
    ("login", "net user", r"(?i)\bnet\s+user\s+\S{1,80}\s+(?P<value>[^\s/*$%]\S*)"),
    (
        "login",
        "command cmd askpass",
        r"(?i)pass(?:word|phrase)?_?-?(?:command|cmd|)[= ][\"']?echo\s+(?:-\w\s+)?(?P<value>[^\s\"'|;$]+)",
    ),
    (
        "named value",
        "secret token key",
        r"\b(?:[A-Z]{2,20}_){0,4}(?:SECRET|TOKEN|ACCESS_KEY|SECRET_KEY|ACCOUNT_KEY)\s+'(?P<value>[^'\n]{6,200})'",
    ),
    ("login", "fernet(", r"\bFernet\(\s?b?[\"'](?P<value>[\w\-]{20,}={0,2})[\"']"),
    ("login", "/user:", r"\bnet\s+use\b[^\n]{0,200}?/user:\S{1,80}\s+(?P<value>[^\s/]\S*)"),
    (
        "login",
        "/user:",
        r"\bnet\s+use\s+(?:\S{1,80}\s+)?\\\\\S{1,200}\s+(?P<value>[^\s/*]\S*)\s+/user:",
    ),
    # host, user and password, in this order
    (
        "login",
        "connect( connection( ftp( ftp_tls( mysqli( pdo(",
        r"(?:\b|[a-z_])(?:[cC]onnect|[cC]onnection|FTP|FTP_TLS|mysqli|PDO)\(\s?(?:[\"'][^\"'\n]{1,200}[\"']|[\w.$>\-]{1,80}),\s?(?:\d{1,5},\s?)?"
        r"[\"'][\w.@\-]{1,80}[\"'],\s?[\"'](?P<value>[^\"'\n]{3,80})[\"']",
    ),
    (
        "login",
        "add_password(",
        r"\badd_password\((?:[^,\n]{1,200},\s?){3}[\"'](?P<value>[^\"'\n]{3,80})[\"']",
    ),
    # a program that waits for a password, and what is sent to it
    (
        "login",
        "assw",
        r"(?i)assw(?:or)?d:?[\s\S]{0,40}?\bsend(?:line|ln)?\W{1,4}(?P<value>[^\"'\\\n]{3,80})",
    ),
    (
        "URL",
        ":%s@ :{}@",
        r":(?:%s|\{\})@[^\s\"']{0,200}[\"'](?:\s?%\s?\(?|\.format\()\s?[\"'](?P<value>[^\"'\n]{3,80})[\"']",
    ),
    (
        "login",
        "login auth",
        r"(?i)\b(?:login|(?:http|basic)_?auth)\s?=\s?\(\s?[\"'][^\"'\n]{1,80}[\"'],\s?[\"'](?P<value>[^\"'\n]{3,80})[\"']\s?\)",
    ),
    (
        "aws-secret",
        "akia asia",
        r"\b(?:AKIA|ASIA)[A-Z0-9]{16}[\s:,;|\"']{1,6}(?P<value>[A-Za-z0-9+/]{40})(?![A-Za-z0-9+/])",
    ),
    ("URL", "rtmp", r"\brtmps?://[^\s/]{1,200}/\w{1,40}/(?P<value>[\w\-]{12,})"),
    (
        "named value",
        "secret_id secret-id secretid",
        r"(?i)\bsecret[_-]?id[\"']?\s?[:=]\s?[\"']?(?P<value>[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12})",
    ),
    (
        "named value",
        "mnemonic seed phrase paper",
        r"(?i)(?:mnemonic|seed|phrase|paper[-_ ]?key)\W{1,6}(?P<value>(?:[a-z]{3,8}[ ,]{1,2}){11,23}[a-z]{3,8})",
    ),
    (
        "named value",
        "key",
        r"(?i)key\w{0,20}(?:\[\d{0,4}\])?\s?=\s?[\[{(]\s?(?P<value>(?:0x[0-9a-f]{2},\s{0,20}){7,64}0x[0-9a-f]{2})",
    ),
    (
        "login",
        "sqlplus sqlldr impdp expdp rman",
        r"\b(?:sqlplus|sqlldr|impdp|expdp|rman)\s+(?:-?\w+[\s=]){0,4}[^\s/]{1,80}/(?P<value>[^@\s]+)",
    ),
    # a program that reads a password, from a text
    (
        "login",
        "<<<",
        rf"\b(?:{READERS})\b[^\n<|]{{0,120}}<<<\s*\$?(?P<quote>[\"']?)(?P<value>[^\s\"'$][^\s\"']*)",
    ),
    (
        "login",
        "echo printf",
        rf"\b(?:echo|printf)\s+(?:-\w+\s+)?(?:[\"']%s[\\n]{{0,4}}[\"']\s+)?(?P<quote>[\"']?)(?P<value>[^\s$\"'|][^\"'|\n]{{0,200}}?)(?P=quote)\s*\|\s*(?:sudo\s+)?(?:{READERS})\b",
    ),
    (
        "login",
        "unlock unseal encrypt_string login iwconfig private-key preshared-key",
        r"\b(?:bw\s+unlock|bw\s+login\s+\S{1,200}|vault\s+operator\s+unseal|ansible-vault\s+encrypt_string|iwconfig\s+\S{1,40}\s+key"
        r"|wg\s+set\s[^\n]{1,200}(?:private|preshared)-key\s+<\(echo)\s+[\"']?(?P<value>[^\s\"'\-$)][^\s\"')]*)",
    ),
    (
        "named value",
        "pwd password",
        r"(?i);\s?(?:pwd|password)=\{(?!\d{0,2}\}|[A-Za-z_]{0,40}(?:pass|pw|secret|token)[A-Za-z_]{0,40}\})(?P<value>[^{}\n]+)\}",
    ),
    (
        "named value",
        "密码 密碼 口令 パスワード 비밀번호",
        r"(?:密码|密碼|口令|パスワード|비밀번호)(?:是|为|為|は|는|은)[:：\s「『“]?(?P<value>[!-~]{4,})",
    ),
    (
        "named value",
        "passw passphrase secret api_key apikey",
        r"(?im)^[ \t]{0,40}(?:#\s?define\s+)?\w{0,40}(?:passw(?:or)?d|passphrase|secret|api_?key)\s+"
        r"\"(?P<value>[^\"\n]{3,})\"\s*;?$",
    ),
    (
        "named value",
        "requirepass masterauth",
        r"\b(?:requirepass|masterauth)[ \t]+(?![\"']{2})(?P<value>[^\s=:]\S*)",
    ),
    (
        "login",
        "wpa_passphrase",
        r"\bwpa_passphrase\s+[^\s`$]\S*\s+(?:(?P<quote>[\"'])(?=[^\"'\n]{1,80}[\"']))?(?P<value>(?(quote)[^\"'\n]+|[^\s`$]\S*))",
    ),
    (
        "login",
        "htpasswd mosquitto_passwd",
        r"\b(?:htpasswd|mosquitto_passwd)\s+(?:-\w+\s+){0,3}-\w*b\w*\s+(?:\S+\s+){1,2}(?P<value>\S+)$",
    ),
    (
        "named value",
        "identified",
        r"(?i)\buser\s+\S{1,80}\s+identified\s+by\s+(?P<value>[^\s'\"$<{%*&:;]{3,})",
    ),
    ("login", ".logon", r"(?<!\w)\.logon\s+\S{1,80},(?P<value>[^\s;]+)"),
    # DOMAIN/user:password@host
    (
        "user and password",
        "@",
        r"(?<![\w/@.:\-])[A-Za-z][\w.\-]{0,40}[/\\]{1,2}[A-Za-z][\w.\-]{0,63}:(?=[^\s@]{0,256}[A-Za-z])"
        r"(?P<value>[^\s/@:'\"]{6,256})@(?!sha256)(?=[A-Za-z\[]|\d{1,9}\.\d)",
    ),
    # a user, and the word before the password: user me pass S, user me using S
    (
        "login",
        "user␣ username␣ login␣",
        r"(?i)\b(?:user(?:name)?|login)\s+[\"']?[\w.@\-]{1,80}[\"']?\s+(?:[/,|]\s|and\s)?(?:pass(?:word|wd)?|pw|pwd|using(?!\s\S{0,7}(?:\s|$))|secret)\s+"
        r"(?P<quote>[\"']?)(?P<value>(?=[^\s\"']{0,200}\d)[^\s\"']{4,200})(?P=quote)",
    ),
    # commands that set a password, which is their last word
    (
        "login",
        "password␣ passwd␣ pass␣",
        r"(?i)\b(?:reset|set|change|user|update)[\-:_](?:[a-z]{1,20}[\-:_]){0,3}(?:password|passwd|pass)\s+(?:[\w.@]{1,80}\s+)?"
        r"(?P<quote>[\"']?)(?P<value>(?=[^\s\"']{0,200}\d)[^\s\"'\-/=][^\s\"'=]{5,200})(?P=quote)\s*$",
    ),
    (
        "login",
        "user␣ users␣ account␣",
        r"\b(?:user|account|users)\s+(?:create|add|new)\s+(?:[\w.\-]{1,80}\s+){1,2}?"
        r"(?P<quote>[\"']?)(?P<value>(?=[^\s\"']{0,200}\d)(?=[^\s\"']{0,200}[A-Za-z])[^\s\"'\-/=@][^\s\"'=@/]{5,200})(?P=quote)\s*$",
    ),
    # commands that hand a key over
    (
        "login",
        "auth␣ authorize␣ authorise␣ activate␣ register␣ signin␣ apikey␣ init␣ connect␣ license␣ licence␣",
        r"(?:^|[;&|\n]\s{0,8}|\x1f)[\w./\-]{1,60}\s+(?:\w{1,20}\s+)?"
        r"(?:auth|authori[sz]e|activate|register|signin|apikey|init|connect|licen[cs]e)(?:\s+(?:add|set|-\w|--\w+|\w{6,20}))?\s+"
        r"(?P<value>(?=[A-Za-z_\-]{0,60}\d[\d]{0,60}[A-Za-z_\-][A-Za-z_\-]{0,60}\d)[\w\-]{24,200})(?!\S)",
    ),
    (
        "option",
        "pass:",
        r"(?i)(?<![^\s=])-{1,2}[\w\-]{0,40}pass(?:in|out)?[\s=][\"']?pass:(?P<value>[^\s\"']{2,200})",
    ),
    # user:password after an option of one letter
    (
        "user and password",
        "-a -n -u",
        r"(?<!\S)-[aAnu]\s[\"']?[A-Za-z][\w.@\-]{0,63}:(?P<value>(?=[^\s\"':]{0,200}\d)(?=[^\s\"':]{0,200}[a-z])(?=[^\s\"':]{0,200}[A-Z!#$^&*?])"
        r"[^\s\"':/]{6,200})(?![^\s\"'])",
    ),
    # -U USER … -P PASSWORD, but not a partition's, a database's or a Python program's -p
    (
        "option",
        "-u␣ -u= -l␣ -l= --user --login -user -login",
        r"\b(?:s(?:queue|info|acct|alloc|batch|run|cancel)|pdsh|clush|[bq]sub|oarsub|mysql\w*|mariadb\w*|python[\d.]*)\b[^\n;&|]*"
        r"|(?<!\S)-{1,2}(?:[uUl]|user(?:name)?|login)[\s=][\"']?[A-Za-z][^\s\"':/]{0,63}[\"']?"
        r"(?:\s(?!\S{0,200}(?:python|\.py\b|\.sh\b))[^\s;&|]{1,200}){0,6}?\s-{1,2}(?:[pPW]|pw|pass)[\s=]?"
        r"(?P<quote>[\"']?)(?P<value>(?=[^\s\"']{0,200}\d)(?=[^\s\"']{0,200}[A-Za-z])[^\s\"'/:=\-@][^\s\"'/:=@]{5,200})(?P=quote)(?!\S)",
    ),
    # config set HOST user:password
    (
        "user and password",
        "config␣",
        r"\bconfig\s(?:set\s)?(?:--\w{1,20}\s)?[\w.\-]{1,80}\s[A-Za-z][\w.\-]{0,40}:(?P<value>(?=[^\s\"':]{0,200}\d)"
        r"(?=[^\s\"':]{0,200}[A-Za-z])[^\s\"':/]{6,200})(?!\S)",
    ),
    # what has letters, digits and signs that names lack
    (
        "option",
        "-p␣ -w␣",
        r"(?<!\S)-[pPwW]\s[\"']?(?P<value>(?=[^\s\"']{0,200}\d)(?=[^\s\"']{0,200}[A-Za-z])(?=[^\s\"']{0,200}[\w][!#^&])[^\s\"'/=<>()$@*]{6,200})(?![^\s\"'])",
    ),
    # lines of routers, and of chap-secrets and ipsec.secrets
    (
        "named value",
        "secret␣ password␣ community␣ user␣ tacacs radius pre-shared",
        r"(?im)^[ \t]{0,40}(?:enable\s(?:secret|password)|snmp-server\s(?:community|user)|(?:tacacs|radius)[\w\s.\-]{0,80}\skey"
        r"|(?:crypto[\w\s.\-]{0,80}\s)?pre-shared-key(?:\s(?:local|remote|ascii-text|address\s\S{1,80}))?|username\s\S{1,80}\s(?:privilege\s\d{1,2}\s)?secret)"
        r"(?:\s\d)?\s(?P<value>[^\s\"]{4,200}|\"[^\"\n]{4,200}\")",
    ),
    (
        "named value",
        "␣*",
        r"(?m)^[^\s#]{1,80}[ \t]+\*[ \t]+(?P<quote>\"?)(?P<value>[^\s\"*]{4,200})(?P=quote)[ \t]+(?:\*|\d{1,3}\.\d[\d.]*)\s*$",
    ),
    (
        "named value",
        ":␣psk :␣eap :␣xauth :␣ntlm :␣rsa",
        r"\s?:\s(?:PSK|EAP|XAUTH|NTLM|RSA)\s+\"(?P<value>[^\"\n]{2,200})\"",
    ),
    (
        "named value",
        "$ansible_vault",
        r"\$ANSIBLE_VAULT;[\d.]{1,8};AES256[;\w]{0,40}\s+(?P<value>[0-9a-f\s]{10,})",
    ),
    # what a program that asks for a password is given
    (
        "login",
        "input=",
        r"\b(?:sudo|passwd|kinit|su|gpg|cryptsetup|login|chpasswd|ssh-add)\b[^\n]{0,200}?\binput=b?f?[\"'](?P<value>[^\"'\\\n]{3,80})",
    ),
    # a value, and the name behind it
    (
        "named value",
        "passw secret token api",
        r"(?i)[\"'](?P<value>(?=[^\s\"']{0,200}\d)(?=[^\s\"']{0,200}[a-z])[^\s\"'/(){}<>]{8,200})[\"'][\w.()\]]{0,30}[,;]?[ \t]{0,8}(?:#|//|--)[ \t]{0,4}"
        r"(?:(?:the|my|our|\w{1,20})\s){0,2}(?:password|passphrase|secret|api[ _]?key|(?:api|access|auth|hf|bot) token)\b(?! file| path)",
    ),
    (
        "named value",
        "%s {}",
        r"(?i)(?:token|passw(?:or)?d|secret|api[ _]?key|credentials?)\b[^\"'\n]{0,20}(?:%s|\{\})[^\"'\n]{0,20}[\"'](?:,\s?|\s?%\s?\(?|\.format\()[\"']"
        r"(?P<value>(?=[^\s\"']{0,200}\d)(?=[^\s\"']{0,200}[a-z])[^\s\"']{8,200})[\"']",
    ),
    (
        "URL",
        "signature= sig= hmac=",
        r"(?i)[?&](?:[\w.\-]{0,20}signature|sig|hmac)=(?P<value>(?=[a-z_\-.+/%]{0,80}\d)[\w\-.%/+=]{16,})",
    ),
    (
        "option",
        "securestring",
        r"\bSecureString\b[^\n]{0,200}?--value[\s=](?P<quote>[\"']?)(?P<value>[^\s\"']{2,200})(?P=quote)",
    ),
    (
        "option",
        "securestring",
        r"--value[\s=](?P<quote>[\"']?)(?P<value>[^\s\"']{2,200})(?P=quote)(?=[^\n]{0,200}\bSecureString\b)",
    ),
    ("login", "radtest", r"\bradtest\s+(?:-\w\s+(?:\w+\s+)?){0,3}\S{1,80}\s(?P<value>\S{2,200})"),
    (
        "login",
        "radtest",
        r"\bradtest\s+(?:-\w\s+(?:\w+\s+)?){0,3}(?:\S{1,80}\s){4}(?P<value>\S{2,200})",
    ),
    (
        "login",
        "hdbuserstore",
        r"(?i)\bhdbuserstore\s(?:-\S+\s){0,3}set\s(?:\S{1,80}\s){3}(?P<value>\S{2,200})",
    ),
    # one word that a program reads
    (
        "login",
        "<<<",
        r"<<<\s?(?P<quote>[\"']?)(?P<value>(?=[^\s\"']{0,200}\d)(?=[^\s\"']{0,200}[A-Za-z])[^\s\"'/()=<>{}$\[\]]{7,200})(?P=quote)\s*$",
    ),
    (
        "login",
        "login␣",
        r"\b(?:\w{1,20}[-_])?login\s[\w.\-]{1,64}@[\w.\-]{1,80}\s(?P<quote>[\"']?)(?P<value>(?=[^\s\"']{0,200}\d)(?=[^\s\"']{0,200}[A-Za-z])[^\s\"'/()=]{6,200})(?P=quote)",
    ),
    ("login", "ipmitool", r"(?i)\bsmcipmitool\s\S{1,80}\s\S{1,80}\s(?P<value>\S{4,200})"),
    ("option", "--community", r"--community[\s=](?P<value>[^\s\"'$<{]{4,200})"),
    ("login", "obfuscate", r"\bsss_obfuscate\s(?:-\w\s\S{1,80}\s){0,4}(?P<value>[^\s\-]\S{4,200})"),
    # an option and its value as items of a list in YAML, and pairs of elements
    (
        "option",
        "-␣- -␣\"- -␣'-",
        r"(?i)(?:^|\n)[ \t]{0,40}-[ \t][\"']?--?[\w\-]{0,40}(?:password|passwd|secret|token|api-?key)[\"']?[ \t]{0,8}\n[ \t]{0,40}-[ \t]"
        r"(?P<quote>[\"']?)(?P<value>(?=[^\s\"']{0,200}[A-Za-z])[^\s\"'$<{\-][^\s\"']{4,200})(?P=quote)",
    ),
    (
        "named value",
        "password< passwd< token< secret< key<",
        r"(?i)>[\w .\-]{0,40}(?:password|passwd|secret|token|api[ _-]?key)</(?P<quote>\w{1,40})>\s{0,40}<(?P=quote)>(?P<value>[^<>\s][^<>]{3,400})</",
    ),
    (
        "named value",
        "password{ passwd{ passphrase{ secret{ token{ key{",
        r"(?i)\b\w{0,40}(?:password|passwd|passphrase|secret|token|key)\{\s?[\"'](?P<value>(?=[^\"'\n]{0,200}\d)[^\n\"']{6,200})[\"']\s?\}",
    ),
    (
        "named value",
        "created generated issued reset␣ changed␣ set␣to",
        r"(?i)(?:api key|token|secret|password|passphrase)s?\s(?:(?:was|is|has been)\s)?(?:created|generated|issued|reset|changed|set to)\s?[:=]?\s"
        r"[\"']?(?P<value>(?=[^\s\"']{0,200}\d)(?=[^\s\"']{0,200}[A-Za-z])[^\s\"'<>(){}]{8,200})",
    ),
    # NAME:password after what says how it is proved
    (
        "user and password",
        "digest␣ plain␣ basic␣ scram user=",
        r"(?i)(?:\b(?:digest|plain|basic|scram(?:-sha-\d{1,3})?)\s|\buser=)(?!md5|sha)[A-Za-z][\w.@\-]{0,40}:(?P<value>(?=[^\s\"':,]{0,200}\d)"
        r"(?=[^\s\"':,]{0,200}[A-Za-z])[^\s\"':/,]{6,200})",
    ),
    # the command that says the password
    (
        "option",
        "echo printf",
        r"(?i)(?:pass|secret|token)[\w\-]{0,40}[=\s][\"'<(]{0,3}\s?(?:echo|printf)\s(?:-\w\s)?[\"']?(?P<value>[^\s\"'$()|]{4,200})",
    ),
    ("option", "-hp", r"\brar\s[^\n]{0,200}?\s-hp(?P<value>\S{2,200})"),
    # put NAME-OF-A-SECRET VALUE, /set a.b.password VALUE
    (
        "named value",
        "password␣ passwd␣ secret␣ api_key␣ api-key␣ apikey␣ token␣",
        r"(?i)\b(?:write|put|set|add|store|insert|update|edit)\s(?:[\w/.\-]{1,80}\s){0,2}?[\w/.\-]{0,60}(?:password|passwd|secret|api[_\-]?key|token)\s"
        r"(?P<quote>[\"']?)(?P<value>(?=[^\s\"']{0,200}\d)(?=[^\s\"']{0,200}[A-Za-z])[^\s\"'/=\-@$<{(][^\s\"'=(){}]{6,200})(?P=quote)[\"']?\s*$",
    ),
    (
        "named value",
        "password( passwd( pwd(",
        r"(?i)[,\s](?:password|passwd|pwd)\((?P<value>(?=[^\s()\"']{0,200}\d)(?=[^\s()\"']{0,200}[A-Za-z])[^\s()\"',=\[\]]{8,200})\)",
    ),
    (
        "login",
        "identify /oper",
        r"(?i)(?:\bnickserv\s+identify|(?<!\S)/oper)\s+(?:\S{1,80}\s+)?(?P<value>\S{4,200})\s*$",
    ),
    (
        "named value",
        "ssid",
        r"(?i)\bssid[^\n]{0,80}?\b(?:key|psk)[\"'>=:\s]{1,4}(?P<value>[^\s<>\"',;]{6,80})",
    ),
    (
        "login",
        "oracle",
        r"\b\w*[oO]racle\w*\.(?:connect|connect_async|create_pool|SessionPool)\(\s?[\"'][^\"'\n]{1,80}[\"'],\s?[\"'](?P<value>[^\"'\n]{3,80})[\"']",
    ),
    # username_pw_set("user", "…"), set_credentials("user", "…")
    (
        "login",
        "pw( pass( password( passwd( credential( credentials( _set( pwset( passwordset(",
        r"(?i)\b(?!get|read|check|verify)\w{0,30}(?:_pw|pass|passwd|password|credentials?)(?:_?set)?\(\s?[\"'][^\"'\n]{1,80}[\"'],\s?"
        r"[\"'](?P<value>(?=[^\"'\n]{0,200}\d)(?=[^\"'\n]{0,200}[A-Za-z])[^\s\"']{6,80})[\"']\s?[,)]",
    ),
    # def password(): return "…"
    (
        "named value",
        "return",
        r"(?i)\b(?:def|function|func|fn)\s\w{0,40}(?:password|passwd|token|secret|api_?key)\w{0,10}\([^)\n]{0,80}\)[^:{\n]{0,40}[:{]\s{0,40}"
        r"return\s[rbf]?[\"'](?P<value>(?=[^\s\"']{0,200}\d)(?=[^\s\"']{0,200}[A-Za-z])[^\s\"'<>\[\]]{8,200})[\"']",
    ),
    (
        "named value",
        "password␣ passphrase␣ passcode␣ api␣key api-key",
        r"(?i)\b(?:with|us(?:e|ing))\s(?:the\s)?(?:password|passphrase|passcode|api[ -]key)\s[\"']?(?P<value>(?=[^\s\"']{0,200}\d)"
        r"(?=[^\s\"']{0,200}[A-Za-z])[^\s\"'<>(){}=:]{7,200})",
    ),
    ("URL", "hooks.zapier", r"hooks\.zapier\.com/hooks/catch/\d{1,12}/(?P<value>\w{4,40})"),
    (
        "named value",
        "securestring add-mask",
        r"(?i)(?:convertto-securestring\s{1,4}(?:-\w{1,20}\s{1,4}){0,3}|::add-mask::)(?P<quote>[\"']?)(?P<value>[^\"'\n]+?)(?=[\"']?(?:\s|$|[)]))",
    ),
    (
        "login",
        "nmcli",
        r"\bnmcli\s[^\n]{0,200}?\s(?:password|psk|\S{1,20}\.psk)\s(?P<quote>[\"']?)(?P<value>[^\s\"'$<][^\n\"']{2,80}?)(?P=quote)(?=\s|$)",
    ),
    # "user me, password S"
    (
        "named value",
        SAID.replace(" ", "␣").replace("|", "␣ ") + "␣",
        rf"(?i)[,;/(]\s?(?:(?:with|and|the|initial|temporary|new|default|root|admin)\s){{0,3}}(?:{SAID})\s(?P<value>(?=[^\s]{{0,80}}\d)(?=[^\s]{{0,80}}[A-Za-z])[^\s\"'()=<>{{}}\[\],]{{6,80}})(?=[\s,;)]|\.?$)",
    ),
    (
        "named value",
        "cdata",
        r"(?i)<\w{0,40}(?:passw(?:or)?d|passphrase|pwd|secret|token|api_?key)>\s{0,40}<!\[CDATA\[(?P<value>(?![$<{])[^\n]{1,400}?)\]\]>",
    ),
    (
        "user and password",
        "pgpass",
        r"[\w.\-*]+:(?:\d{2,5}|\*):[\w*.\-]+:[\w*.\-]+:(?P<value>[^\s\"'$]+)(?=[\"']?[^\n]{0,80}pgpass)",
    ),
    # "Generated password for user me: S", "a password is generated for me: S"
    (
        "named value",
        "password␣for password␣is password␣was password␣has",
        r"(?i)\bpassword\s(?:(?:is|was|has been)\s(?:generated|created|set|reset|changed)\s)?for\s(?:(?:the|new|user|account|service|database)\s){0,3}"
        r"[\w.@\-\"']{1,60}\s?(?:[:=]|is)\s(?P<value>(?=\S{0,80}\d)(?=\S{0,80}[A-Za-z])[^\s\"'<(){}$][^\s\"'(){}$]{5,200})",
    ),
    (
        "named value",
        "one-time one␣time otp code",
        r"(?i)\b(?:one[- ]time (?:password|passcode|code|pin)|otp|(?:verification|security|login|sms|2fa) code)(?:\s(?:for|of)\s\S{1,40})?(?:\sis\s?:?|:)?\s(?P<value>\d{3}[ \-]?\d{3,5})\b",
    ),
    ("URL", "appid= app_id=", r"(?i)[?&]app_?id=(?P<value>(?=[a-z_\-]{0,80}\d)[\w\-]{24,})"),
    ("login", "::server", r"\b(?P<value>K10[0-9a-f]{16,}::server:\w+)"),
    (
        "login",
        "openssl␣passwd mkpasswd",
        r"\b(?:openssl\s+passwd|mkpasswd)\s(?:-{1,2}(?:salt|s|S|m|method|R|rounds)[=\s]\S{1,40}\s|-{1,2}\w[\w\-]{0,20}\s){0,5}"
        r"(?P<quote>[\"']?)(?P<value>[^\s\"'$<>|\-)][^\s\"')]{2,80})(?P=quote)",
    ),
    (
        "login",
        "hash(\" hash(' hashpw( make_password( hash_password( _password_hash( verify( crypt(",
        r"\b(?:bcrypt\.(?:hash|hashpw|checkpw|compare)|(?:generate|check)_password_hash|(?:make|hash|set)_password|crypt|(?:pwd|crypt|password)_?\w{0,20}\.(?:hash|verify)"
        r"|(?:\w{0,20}_crypt|bcrypt|argon2\w{0,5}|Hasher\(\))\.(?:hash|verify))\(\s?[rbu]?[\"'](?P<value>[^\"'\n]{4,80})[\"']",
    ),
    (
        "user and password",
        ":' :\"",
        r"(?<![\w/@.:])[A-Za-z][\w.\-/\\]{0,80}:(?P<quote>[\"'])(?P<value>[^\"'\n]{3,80})(?P=quote)@(?=[A-Za-z\[]|\d{1,9}\.\d)",
    ),
    (
        "named value",
        "variable␣",
        r"(?i)\bvariable\s+\"\w{0,40}(?:password|passwd|passphrase|secret|token|api_?key)\w{0,20}\"\s*\{[^{}]{0,200}?\bdefault\s*=\s*\"(?P<value>[^\"\n$]{2,200})\"",
    ),
    (
        "netrc",
        "password",
        r"(?m)^[ \t]*(?:user|login)\s+\S{1,200}[ \t]*\n[ \t]*password\s+(?P<value>[^\s=:]\S*)[ \t]*$",
    ),
    (
        "named value",
        "password",
        r"(?i)\bpassword\s(?:[^\n:]{0,80}:\s{1,8}(?P<value>[0-9a-f]{32})\s*$)",
    ),
    (
        "named value",
        "password␣for␣",
        r"(?i)\bpassword\sfor\s(?:the\s)?[\w.\-]{1,40}\suser(?:\s\([^()\n]{0,120}\))?:\s(?P<value>(?=\S{0,80}[A-Z\d])[^\s\"'<>(){}$]{6,200})",
    ),
    (
        "named value",
        "password␣for␣",
        r"(?i)\bset\s+password\s+for\s+[^\n=;]{1,120}=\s?(?:password\()?[\"'](?P<value>[^\"'\n]{3,80})[\"']",
    ),
    (
        "named value",
        "unseal␣key key␣to␣ secret␣( password␣( token␣( key␣(",
        r"(?i)\b(?:unseal key(?: \d+)?|key to (?:your )?netrc(?: file)?|(?:secret|password|passphrase|token|key)\s\([^()\n]{1,40}\)):\s"
        r"(?P<value>(?=\S{0,80}\d)(?=\S{0,80}[A-Za-z])[^\s\"'<>(){}$]{8,200})",
    ),
    (
        "named value",
        "recovery␣code backup␣code scratch␣code",
        r"(?i)\b(?:recovery|backup|scratch) codes?\s?:\s{1,4}(?P<value>(?=[a-z\-]{0,14}\d)(?:[a-z\d\-]{6,14}[ ,\n]{1,3}){1,15}(?=[a-z\-]{0,14}\d)[a-z\d\-]{6,14})",
    ),
    (
        "option",
        "option(",
        r"\bOption\(\s?[\"'](?P<value>[^\"'\n]{4,80})[\"'],\s?[\"']--?[\w\-]{0,40}(?:password|passphrase|secret|token|api-key)[\"']",
    ),
    # password, host = "S", "h"
    (
        "named value",
        "password, passwd, pwd, passphrase, secret, api_key, apikey,",
        r"(?m)^[ \t]*\(?\w{0,40}(?:password|passwd|pwd|passphrase|secret|api_?key),\s?[\w, ]{1,80}\)?\s?=\s?\(?\s?[rbf]?[\"'](?P<value>[^\"'\n]{3,200})[\"']\s?,",
    ),
    (
        "named value",
        "key␣' key␣\" token␣' token␣\" secret␣' secret␣\" password␣' password␣\"",
        r"(?i)\b(?:invalid|wrong|bad|incorrect|expired|rejected|with|using|unknown)\s(?:\w{1,20}\s)?(?:api[_ \-]?key|token|secret|password)\s[\"']"
        r"(?P<value>(?=[^\"'\n]{0,200}\d)(?=[^\"'\n]{0,200}[A-Za-z])[^\s\"'<>{}$]{8,200})[\"']",
    ),
    (
        "login",
        "pgp_sym_ aes_encrypt aes_decrypt",
        r"(?i)\b(?:pgp_sym_(?:en|de)crypt(?:_bytea)?|aes_(?:en|de)crypt)\([^,\n]{1,80},\s?'(?P<value>[^'\n]{3,80})'",
    ),
    (
        "login",
        "passwd",
        r"\b(?:\w{0,8}passwd)\b[^\n<]{0,80}<<-?\s?[\"']?(?P<quote>\w{1,20})[\"']?\n(?P<value>[^$]{3,200}?)\n(?P=quote)\b",
    ),
    ("login", "oathtool", r"\boathtool\s(?:-{1,2}[\w=\-]{1,40}\s){1,6}(?P<value>[A-Za-z0-9]{8,})"),
    # Secret.from_string("…"), not Secret.from_name("…")
    (
        "named value",
        "secret. password. credential. token. apikey.",
        r"\b\w{0,20}(?:Secret|Password|Credential|Token|ApiKey)\.(?:from_?(?:str|string|value|plain\w{0,5}|literal|raw)|fromString|of|parse|wrap|literal|plain)"
        r"\(\s?[rbf]?[\"'](?P<value>[^\"'\n$<{][^\"'\n]{3,200})[\"']",
    ),
    # all of what a Secret of Kubernetes holds
    (
        "named value",
        "stringdata",
        rf"\bstringData:[ \t]*\n{BLOCK}",
    ),
    (
        "named value",
        "secret",
        rf"(?m)^kind:[ \t]*[\"']?Secret[\"']?[ \t]*\n(?:(?!---|data:)[^\n]*\n){{0,40}}?data:[ \t]*\n{BLOCK}",
    ),
    ("login", "'ac \"ac", r"[\"']AC[0-9a-f]{32}[\"'],\s{0,40}[\"'](?P<value>[0-9a-f]{32})[\"']"),
)
