//! TLS on the server's own port: what it changes for browsers and the command line.

use std::{
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    process::Output,
    sync::Arc,
};

use rcgen::{CertifiedKey, KeyPair};
use serde_json::json;
use tokio_rustls::rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned, crypto::ring,
    pki_types::CertificateDer,
};

use harness::{Home, Person, Server, WAIT_TIMEOUT, run, wait_for};

type Stream = StreamOwned<ClientConnection, TcpStream>;

fn pair() -> CertifiedKey<KeyPair> {
    let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
    rcgen::generate_simple_self_signed(names).unwrap()
}

fn write(home: &Home, pair: &CertifiedKey<KeyPair>) {
    fs::write(home.path().join("cert"), pair.cert.pem()).unwrap();
    fs::write(home.path().join("key"), pair.signing_key.serialize_pem()).unwrap();
}

fn start(home: &Home, pair: &CertifiedKey<KeyPair>) -> Server {
    write(home, pair);
    let path = |name: &str| home.path().join(name).to_str().unwrap().to_owned();
    Server::start_with(home, &["--tls-cert", &path("cert"), "--tls-key", &path("key")])
}

/// Connects; fails if the server presents another certificate.
fn connect(address: SocketAddr, pair: &CertifiedKey<KeyPair>) -> Result<Stream, String> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(pair.cert.der().to_vec())).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let mut tcp = TcpStream::connect(address).unwrap();
    tcp.set_read_timeout(Some(WAIT_TIMEOUT)).unwrap();
    let mut tls = ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap();
    while tls.is_handshaking() {
        tls.complete_io(&mut tcp).map_err(|error| error.to_string())?;
    }
    Ok(StreamOwned::new(tls, tcp))
}

/// Sends a request and reads the answer until its end.
fn ask(stream: &mut Stream, method: &str, target: &str, headers: &str) -> String {
    let host = stream.sock.peer_addr().unwrap();
    let request = format!("{method} {target} HTTP/1.1\r\nhost: {host}\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let (mut answer, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let count = stream.read(&mut buffer).unwrap();
        answer.extend_from_slice(&buffer[..count]);
        let text = String::from_utf8_lossy(&answer).to_ascii_lowercase();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.split("content-length: ").nth(1);
            let length = length.map_or("0", |rest| rest.lines().next().unwrap());
            if body.len() >= length.parse().unwrap() {
                return String::from_utf8_lossy(&answer).into_owned();
            }
        }
        assert!(count > 0, "cut off after {text:?}");
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_browser_gets_a_secure_cookie_and_only_its_own_pages_may_use_it() {
    let (home, pair) = (Home::new(), pair());
    let server = start(&home, &pair);
    let url = format!("https://{}", server.address);
    let link = server.link.clone().unwrap();
    let target = link.strip_prefix(&url).unwrap_or_else(|| panic!("{link} is not below {url}"));
    let address = fs::read_to_string(home.path().join("address")).unwrap();
    assert_eq!(address.trim(), url);

    let ask = |method: &str, target: &str, headers: &str| {
        ask(&mut connect(server.address, &pair).unwrap(), method, target, headers)
    };
    let answer = ask("GET", target, "");
    assert!(answer.starts_with("HTTP/1.1 303"), "{answer}");
    let cookie = answer.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
    assert!(cookie.contains("; HttpOnly; SameSite=Strict; Secure"), "{cookie}");
    let cookie = cookie.split(';').next().unwrap();
    let with = |origin: &str| {
        let headers = format!("cookie: {cookie}\r\norigin: {origin}\r\n");
        ask("GET", "/api/threads", &headers).split(' ').nth(1).unwrap().to_owned()
    };
    assert_eq!(with(&url), "200");
    assert_eq!(with(&format!("http://{}", server.address)), "403");
}

#[test]
fn the_command_line_speaks_https() {
    let (home, pair) = (Home::new(), pair());
    let server = start(&home, &pair);
    let path = home.path().to_str().unwrap();
    let (url, cert) =
        (format!("https://localhost:{}", server.address.port()), path.to_owned() + "/cert");
    // The command line trusts the certificate in the server's home.
    let output = run(&["exec", "--", "echo $((6*7))"], &[("STEAD_HOME", path)]);
    assert_eq!((&*output.stdout, stderr(&output)), (&b"42\n"[..], String::new()));
    // Another is trusted by a file, or by the system's authorities, which do not know this one.
    let trusted = [("STEAD_HOME", path), ("STEAD_URL", &url), ("STEAD_CACERT", &cert)];
    let output = run(&["threads", "ls", "--json"], &trusted);
    assert!(output.status.success(), "{output:?}");
    let output = run(&["exec", "--", "true"], &trusted[..2]);
    let untrusted =
        format!("the certificate of localhost:{} is not trusted; --cacert", server.address.port());
    assert!(stderr(&output).contains(&untrusted), "{output:?}");
    assert_eq!(output.status.code(), Some(125));
    // A client that sends plain HTTP gets a hint to use https.
    let plain = url.replace("https", "http");
    let output = run(&["threads", "ls"], &[("STEAD_HOME", path), ("STEAD_URL", &plain)]);
    assert!(stderr(&output).contains("the URL must begin with https://"), "{output:?}");
}

#[test]
fn a_person_attaches_over_tls() {
    let (home, pair) = (Home::new(), pair());
    let _server = start(&home, &pair);
    let mut person = Person::run(&home, &["attach", "--create", "t"]);
    person.sees("Ctrl-\\ detaches");
    person.type_text("echo \"<$((6*7))>\"\r");
    person.sees("<42>");
    person.type_text("\x1c");
    assert_eq!(person.ends(), Some(0));
}

#[test]
fn a_changed_certificate_is_used_and_open_connections_stay() {
    let (home, first, second) = (Home::new(), pair(), pair());
    let server = start(&home, &first);
    let bearer = format!("authorization: Bearer {}\r\n", server.token);
    let mut open = connect(server.address, &first).unwrap();
    assert!(ask(&mut open, "GET", "/api/threads", &bearer).starts_with("HTTP/1.1 200"));
    write(&home, &second);
    wait_for("the new certificate", || connect(server.address, &second).map(drop));
    assert!(connect(server.address, &first).is_err());
    // The command line trusts the new certificate without a change.
    let path = home.path().to_str().unwrap();
    let output = run(&["threads", "ls"], &[("STEAD_HOME", path)]);
    assert!(output.status.success(), "{output:?}");
    let answer = ask(&mut open, "GET", "/api/threads", &bearer);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}\n{}", server.log());
}

#[test]
fn a_stalled_handshake_times_out_and_delays_no_other_client() {
    let (home, pair) = (Home::new(), pair());
    let server = start(&home, &pair);
    let mut silent = TcpStream::connect(server.address).unwrap();
    silent.set_read_timeout(Some(WAIT_TIMEOUT)).unwrap();
    silent.write_all(&[22, 3, 1]).unwrap();
    let answer = ask(&mut connect(server.address, &pair).unwrap(), "GET", "/healthz", "");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    // The end comes from the server, not from the time limit of this read.
    let cut = silent.read(&mut [0; 16]);
    let reset = |error: &std::io::Error| error.kind() == std::io::ErrorKind::ConnectionReset;
    assert!(matches!(cut, Ok(0)) || cut.as_ref().is_err_and(reset), "{cut:?}");
}

#[test]
fn plain_http_on_a_public_address_does_not_start() {
    let home = Home::new();
    let path = home.path().to_str().unwrap();
    let output = run(&["serve", "--listen", "0.0.0.0:0", "--home", path], &[]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        stderr(&output),
        "stead: listening on 0.0.0.0:0 without TLS is refused: tokens would cross the network in \
         clear text; use --tls-cert FILE --tls-key FILE, or --behind-proxy if a proxy in front \
         terminates TLS\n"
    );
}

#[test]
fn behind_a_proxy_links_lead_to_its_name() {
    let home = Home::new();
    let server = Server::start_with(&home, &["--behind-proxy", "--set", "names=stead.example"]);
    let link = server.link.clone().unwrap();
    assert!(link.starts_with("https://stead.example/login?code="), "{link}");
    let login = server.client().post("/api/login-links", json!({})).expect(201);
    let target = login["url"].as_str().unwrap().strip_prefix("https://stead.example").unwrap();
    let request = server.stranger().request("GET", target).header("host", "stead.example");
    let answer = request.header("x-forwarded-proto", "https").send();
    let cookie = answer.expect_status(303).header("set-cookie").unwrap();
    assert!(cookie.ends_with("; Secure"), "{cookie}");
}
