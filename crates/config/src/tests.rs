//! Precedence of the four sources of settings, and the checks on their values.

use super::*;

fn sources(environment: &[(&str, &str)], flags: &[(&str, &str)]) -> ConfigSources {
    let mut all = ConfigSources {
        environment: environment.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect(),
        ..ConfigSources::default()
    };
    for (key, value) in flags {
        all.flag(key, *value, &format!("--{key}"));
    }
    all
}

fn origin(loaded: &Loaded, key: &str) -> (String, Origin) {
    let view = loaded.shown.iter().find(|view| view.key == key).unwrap();
    (view.value.clone(), view.origin.clone())
}

#[test]
fn a_flag_wins_over_the_environment_over_the_file_over_the_default() {
    let home = std::env::temp_dir().join(format!("stead-config-{}", std::process::id()));
    std::fs::create_dir_all(&home).unwrap();
    let file = home.join("stead.toml");
    std::fs::write(
        &file,
        "listen = \"127.0.0.1:1\"\nprovider = \"local\"\nnames = [\"a.b\", \"c\"]\n\
         [terminal]\nscrollback = 7\nmax = 9\n",
    )
    .unwrap();
    let home_text = home.to_str().unwrap();
    let environment =
        [("STEAD_HOME", home_text), ("STEAD_LISTEN", "127.0.0.1:2"), ("STEAD_TERMINAL_MAX", "10")];
    let loaded = load(&sources(&environment, &[("listen", "127.0.0.1:3")])).unwrap();
    assert_eq!(origin(&loaded, "listen"), ("127.0.0.1:3".into(), Origin::Flag("--listen".into())));
    assert_eq!(
        origin(&loaded, "terminal.max"),
        ("10".into(), Origin::Environment("STEAD_TERMINAL_MAX".into()))
    );
    assert_eq!(origin(&loaded, "provider"), ("local".into(), Origin::File(file.clone())));
    assert_eq!(origin(&loaded, "limits.requests"), ("1024".into(), Origin::Default));
    assert_eq!(loaded.settings.names, ["a.b", "c"]);
    assert_eq!(loaded.settings.terminal.scrollback, 7);
    assert_eq!(loaded.settings.listen.port(), 3);
    std::fs::remove_dir_all(&home).unwrap();
}

#[test]
fn an_open_server_is_refused_unless_it_is_on_loopback() {
    let open = [("STEAD_NO_AUTH", "true"), ("HOME", "/nowhere")];
    assert!(load(&sources(&open, &[("listen", "127.0.0.1:0")])).is_ok());
    assert!(load(&sources(&open, &[("listen", "[::1]:0")])).is_ok());
    let refused = load(&sources(&open, &[("listen", "0.0.0.0:0")]));
    assert!(matches!(refused, Err(ConfigError::OpenToAll(_))), "{refused:?}");
}

#[test]
fn a_plain_server_is_refused_unless_it_is_on_loopback_or_behind_a_proxy() {
    let home = [("HOME", "/nowhere")];
    let listen = |address, more: &[(&str, &str)]| {
        load(&sources(&home, &[&[("listen", address)], more].concat()))
    };
    let tls = [("tls.cert", "/c"), ("tls.key", "/k")];
    for address in ["0.0.0.0:0", "10.0.0.1:80", "[::]:0", "[2001:db8::1]:1"] {
        let refused = listen(address, &[]);
        assert!(matches!(refused, Err(ConfigError::PlainText(_))), "{refused:?}");
        assert!(listen(address, &tls).is_ok());
        assert!(listen(address, &[("behind_proxy", "true")]).is_ok());
    }
    assert!(listen("127.0.0.1:0", &[]).is_ok() && listen("[::1]:0", &[]).is_ok());
    let half = listen("127.0.0.1:0", &tls[..1]);
    assert!(matches!(half, Err(ConfigError::IncompleteTls)), "{half:?}");
    // Encryption does not replace a token.
    let open = listen("0.0.0.0:0", &[tls[0], tls[1], ("no_auth", "true")]);
    assert!(matches!(open, Err(ConfigError::OpenToAll(_))), "{open:?}");
    let fixtures = listen("0.0.0.0:0", &[tls[0], tls[1], ("mcp.fixtures", "true")]);
    assert!(matches!(fixtures, Err(ConfigError::FixturesOpenToAll(_))), "{fixtures:?}");
}

#[test]
fn an_error_names_the_source_of_the_value() {
    let message = |config: &ConfigSources| load(config).unwrap_err().to_string();
    assert_eq!(
        message(&sources(&[("HOME", "/nowhere"), ("STEAD_TERMINAL_MAX", "many")], &[])),
        "terminal.max = \"many\" (environment STEAD_TERMINAL_MAX): expected a number"
    );
    assert_eq!(
        message(&sources(&[("HOME", "/nowhere")], &[("colour", "red")])),
        "unknown setting \"colour\" (flag --colour); `stead config` lists all of them"
    );
    assert_eq!(message(&sources(&[], &[])), ConfigError::NoHome.to_string());
    let named =
        ConfigSources { file: Some("/nowhere/x.toml".into()), ..sources(&[("HOME", "/h")], &[]) };
    assert_eq!(message(&named), "cannot read /nowhere/x.toml");
}

#[test]
fn a_webhook_is_a_url_with_a_secret_that_is_not_shown() {
    let check = |webhook: &str, secret: &str| {
        let settings = [("notify.webhook", webhook), ("notify.secret", secret)];
        load(&sources(&[("HOME", "/nowhere")], &settings))
    };
    assert!(matches!(check("example.com", "s"), Err(ConfigError::WebhookUrl)));
    assert!(matches!(check("https://example.com", ""), Err(ConfigError::UnsignedWebhook)));
    let loaded = check("https://example.com/x", "s3cret").unwrap();
    assert_eq!(loaded.settings.notify.webhook.as_deref(), Some("https://example.com/x"));
    assert_eq!(origin(&loaded, "notify.secret").0, "(set)");
    assert!(!format!("{:?}", loaded.settings).contains("s3cret"));
}
