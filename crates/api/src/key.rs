//! Keys of sandboxes, volumes, ports, links and uploads, and the signatures made with them.
//!
//! A key has one purpose: a key for a port runs no command, and a key for one file opens no other file. Every
//! key is a keyed hash of its target and its [`Purpose`], so that no key is stored. The hashing key is
//! derived from the server's token: a change of that token invalidates all keys.

use base64::{Engine, engine::general_purpose::STANDARD_NO_PAD};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use model::ThreadId;

/// The prefix of every access token.
const ACCESS_PREFIX: &str = "ea_";
/// The prefix of every traffic token.
const TRAFFIC_PREFIX: &str = "et_";
/// The number of hexadecimal digits of the hash in a token.
const HASH_DIGITS: usize = 40;

/// Makes and checks the tokens of sandboxes.
pub struct Keys([u8; 32]);

/// The purpose of a key. It is part of every hash, so that a key for one purpose never serves another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// The daemon of a sandbox: its programs and files.
    Access,
    /// The ports that programs of a sandbox listen on.
    Traffic,
    /// One port of a sandbox, for a limited time.
    Port,
    /// Signed links to files of a sandbox.
    Signing,
    /// The content of a volume.
    Volume,
    /// The upload of the files of one hash.
    Upload,
    /// A link that opens one port of a thread, for a limited time.
    Preview,
    /// The short form of a thread's id in such a link.
    PreviewThread,
}

impl Purpose {
    /// The prefix of the hashed text. No prefix is a prefix of another, because each ends with a NUL byte.
    fn domain(self) -> &'static str {
        match self {
            Purpose::Access => "access\0",
            Purpose::Traffic => "traffic\0",
            Purpose::Port => "port\0",
            Purpose::Signing => "signing\0",
            Purpose::Volume => "volume\0",
            Purpose::Upload => "upload\0",
            Purpose::Preview => "preview\0",
            Purpose::PreviewThread => "preview thread\0",
        }
    }
}

/// The operation that a signature allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    Read,
    Write,
}

/// The request that a signature covers.
#[derive(Debug, Clone, Copy)]
pub struct Signed<'a> {
    /// The path as written in the request.
    pub path: &'a str,
    pub operation: Operation,
    pub user: &'a str,
    /// The expiry in seconds since 1970.
    pub until: Option<i64>,
}

impl Keys {
    /// The keys of a server with this token.
    pub fn new(token: &str) -> Keys {
        Keys(blake3::derive_key("stead 2026-11-15 access to one sandbox", token.as_bytes()))
    }

    /// The keyed hash of a target for a purpose.
    pub(super) fn digest(&self, purpose: Purpose, target: &str) -> [u8; 32] {
        let text = format!("{}{target}", purpose.domain());
        *blake3::keyed_hash(&self.0, text.as_bytes()).as_bytes()
    }

    fn hash(&self, purpose: Purpose, target: &str) -> String {
        blake3::Hash::from_bytes(self.digest(purpose, target)).to_hex().to_string()
    }

    fn token(&self, purpose: Purpose, prefix: &str, id: &ThreadId) -> String {
        format!("{prefix}{id}_{}", &self.hash(purpose, id.as_str())[..HASH_DIGITS])
    }

    fn verified_sandbox(&self, purpose: Purpose, prefix: &str, given: &str) -> Option<ThreadId> {
        let (id, _) = given.strip_prefix(prefix)?.rsplit_once('_')?;
        let id: ThreadId = id.parse().ok()?;
        same(&self.token(purpose, prefix, &id), given).then_some(id)
    }

    /// The access token of a sandbox, which opens its programs and files.
    pub fn access(&self, id: &ThreadId) -> String {
        self.token(Purpose::Access, ACCESS_PREFIX, id)
    }

    /// The sandbox that an access token opens.
    pub fn opens(&self, given: &str) -> Option<ThreadId> {
        self.verified_sandbox(Purpose::Access, ACCESS_PREFIX, given)
    }

    /// The traffic token of a sandbox, which opens its ports.
    pub fn traffic(&self, id: &ThreadId) -> String {
        self.token(Purpose::Traffic, TRAFFIC_PREFIX, id)
    }

    /// The sandbox whose ports a traffic token opens.
    pub fn opens_traffic(&self, given: &str) -> Option<ThreadId> {
        self.verified_sandbox(Purpose::Traffic, TRAFFIC_PREFIX, given)
    }

    /// Whether a signature was made with the access token of this sandbox.
    pub fn signed(&self, id: &ThreadId, request: &Signed<'_>, signature: &str) -> bool {
        same(&sign(&self.access(id), request), signature)
    }
}

/// The prefix of a token of [`Keys::port`].
const PORT_PREFIX: &str = "s";
/// The number of digits of the UUID in such a token.
const UUID_DIGITS: usize = 32;
/// The number of digits of the hash in such a token.
const PORT_HASH_DIGITS: usize = 16;

impl Keys {
    /// Returns a token that replaces the sandbox's name in a host name and opens one port until a time, in
    /// seconds since 1970. It fits into one DNS label. Returns `None` if the sandbox's id is not a UUID.
    pub fn port(&self, id: &ThreadId, port: u16, until: i64) -> Option<String> {
        let id = uuid::Uuid::try_parse(id.as_str()).ok()?.simple().to_string();
        let hash = self.hash(Purpose::Port, &format!("{id} {port} {until}"));
        Some(format!("{PORT_PREFIX}{id}{}{until:x}", &hash[..PORT_HASH_DIGITS]))
    }

    /// The sandbox whose port such a token opens at this time.
    pub fn opens_port(&self, given: &str, port: u16, now: i64) -> Option<ThreadId> {
        let rest = given.strip_prefix(PORT_PREFIX).filter(|rest| rest.is_ascii())?;
        let (id, rest) = rest.split_at_checked(UUID_DIGITS)?;
        let until = i64::from_str_radix(rest.get(PORT_HASH_DIGITS..)?, 16).ok()?;
        let id: ThreadId = uuid::Uuid::try_parse(id).ok()?.to_string().parse().ok()?;
        (same(&self.port(&id, port, until)?, given) && now <= until).then_some(id)
    }
}

impl Keys {
    /// The key that signs links to files of a sandbox. Another salt revokes all earlier links.
    pub fn signing(&self, id: &ThreadId, salt: &str) -> String {
        self.hash(Purpose::Signing, &format!("{id} {salt}"))
    }
}

/// The prefix of a volume's key.
const VOLUME_PREFIX: &str = "ev_";

impl Keys {
    /// The key that opens the content of a volume, and nothing else.
    pub fn volume(&self, id: &str) -> String {
        format!("{VOLUME_PREFIX}{}", &self.hash(Purpose::Volume, id)[..HASH_DIGITS])
    }

    /// Whether a key opens this volume; `None` if it is not a volume key at all.
    pub fn opens_volume(&self, id: &str, given: &str) -> Option<bool> {
        given.starts_with(VOLUME_PREFIX).then(|| same(&self.volume(id), given))
    }
}

impl Keys {
    /// The signature that allows the upload of the files with one hash until a time, in seconds since 1970.
    pub fn upload(&self, hash: &str, until: i64) -> String {
        self.hash(Purpose::Upload, &format!("{hash} {until}"))[..HASH_DIGITS].to_owned()
    }

    /// Whether a signature allows this upload at this time.
    pub fn opens_upload(&self, hash: &str, until: i64, given: &str, now: i64) -> bool {
        same(&self.upload(hash, until), given) && now <= until
    }
}

/// Compares two secrets in constant time.
pub fn same(one: &str, other: &str) -> bool {
    one.as_bytes().ct_eq(other.as_bytes()).into()
}

/// HMAC (RFC 2104) with SHA-256.
pub fn hmac_sha256(key: &[u8], text: &[u8]) -> [u8; 32] {
    let mut block = [0; 64];
    if key.len() > block.len() {
        block[..32].copy_from_slice(&Sha256::digest(key));
    } else {
        block[..key.len()].copy_from_slice(key);
    }
    let inner = Sha256::new().chain_update(block.map(|byte| byte ^ 0x36)).chain_update(text);
    let outer = Sha256::new().chain_update(block.map(|byte| byte ^ 0x5c));
    outer.chain_update(inner.finalize()).finalize().into()
}

/// The signature that a client computes from an access token.
fn sign(token: &str, request: &Signed<'_>) -> String {
    let operation = match request.operation {
        Operation::Read => "read",
        Operation::Write => "write",
    };
    let mut text = format!("{}:{operation}:{}:{token}", request.path, request.user);
    if let Some(until) = request.until {
        text.push_str(&format!(":{until}"));
    }
    format!("v1_{}", STANDARD_NO_PAD.encode(Sha256::digest(text.as_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_opens_the_sandbox_it_was_made_for() {
        let (keys, others) = (Keys::new("secret"), Keys::new("another"));
        let id: ThreadId = "iabc_9".parse().unwrap();
        let token = keys.access(&id);
        assert_eq!(keys.opens(&token), Some(id.clone()));
        assert_eq!(others.opens(&token), None);
        assert_eq!(keys.opens(&token.replace("abc", "abd")), None);
        assert_eq!(keys.opens(&token[..token.len() - 1]), None);
        for wrong in ["", "ea_", "ea__", "secret", "ea_iabc_9"] {
            assert_eq!(keys.opens(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_key_for_one_purpose_serves_no_other() {
        let keys = Keys::new("secret");
        let id: ThreadId = "iabc".parse().unwrap();
        let (access, traffic) = (keys.access(&id), keys.traffic(&id));
        assert_eq!(keys.opens_traffic(&traffic), Some(id.clone()));
        assert_eq!((keys.opens(&traffic), keys.opens_traffic(&access)), (None, None));
        // Another prefix does not change the purpose.
        assert_eq!(keys.opens(&traffic.replace(TRAFFIC_PREFIX, ACCESS_PREFIX)), None);
        assert_eq!(keys.opens_traffic(&access.replace(ACCESS_PREFIX, TRAFFIC_PREFIX)), None);
        // Neither does a sandbox id that resembles the hashed text of another purpose.
        let odd: ThreadId = "volume x".parse().unwrap();
        let hash = |key: &str| key.rsplit('_').next().unwrap().to_owned();
        assert_ne!(hash(&keys.access(&odd)), hash(&keys.volume("x")));
        let request = Signed { path: "/a", operation: Operation::Read, user: "", until: None };
        assert!(!keys.signed(&id, &request, &sign(&traffic, &request)));
    }

    #[test]
    fn a_port_token_opens_its_port_until_it_expires() {
        let keys = Keys::new("secret");
        let id: ThreadId = "0193b3a5-7c1e-7b6e-8f1a-0c9d2e4f6a81".parse().unwrap();
        let name = keys.port(&id, 65_535, 1_800_000_000).unwrap();
        // The token and its port fit into one DNS label.
        assert!(name.len() + "65535-".len() <= 63, "{name}");
        let check = |name: &str, port, now| keys.opens_port(name, port, now);
        assert_eq!(check(&name, 65_535, 1_800_000_000), Some(id.clone()));
        assert_eq!(check(&name, 65_535, 1_800_000_001), None);
        assert_eq!(check(&name, 80, 1_800_000_000), None);
        assert_eq!(Keys::new("another").opens_port(&name, 65_535, 0), None);
        for wrong in ["", "s", &name[1..], &name[..40], &name.replace("6b49d200", "7b49d200")] {
            assert_eq!(check(wrong, 65_535, 0), None, "{wrong}");
        }
        assert_eq!(keys.port(&"iabc".parse().unwrap(), 80, 0), None);
    }

    #[test]
    fn hmac_matches_the_test_vectors_of_the_rfc() {
        // RFC 4231, test cases 2 and 6.
        let hex =
            |bytes: [u8; 32]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let code = hmac_sha256(b"Jefe", b"what do ya want for nothing?");
        let expected = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        assert_eq!(hex(code), expected);
        let text = b"Test Using Larger Than Block-Size Key - Hash Key First";
        let expected = "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54";
        assert_eq!(hex(hmac_sha256(&[0xaa; 131], text)), expected);
    }

    #[test]
    fn an_upload_link_is_valid_for_one_hash_until_it_expires() {
        let keys = Keys::new("secret");
        let given = keys.upload("abc", 100);
        assert!(keys.opens_upload("abc", 100, &given, 100));
        assert!(!keys.opens_upload("abc", 100, &given, 101));
        assert!(!keys.opens_upload("abd", 100, &given, 0));
        assert!(!keys.opens_upload("abc", 1000, &given, 0));
        assert!(!Keys::new("another").opens_upload("abc", 100, &given, 0));
    }

    #[test]
    fn a_signature_matches_the_one_of_the_clients() {
        let request = Signed { path: "/a", operation: Operation::Read, user: "", until: Some(7) };
        // The SHA-256 of `/a:read::tok:7` in base64 without padding.
        assert_eq!(sign("tok", &request), "v1_i2GWl3dD43Ob2g2TL2mgAp+VSqI2bWt4jfqEE0VL8aI");
        let keys = Keys::new("secret");
        let id: ThreadId = "i1".parse().unwrap();
        let signature = sign(&keys.access(&id), &request);
        assert!(keys.signed(&id, &request, &signature));
        for other in [
            Signed { path: "/b", ..request },
            Signed { operation: Operation::Write, ..request },
            Signed { user: "root", ..request },
            Signed { until: None, ..request },
        ] {
            assert!(!keys.signed(&id, &other, &signature), "{other:?}");
        }
        assert!(!keys.signed(&"i2".parse().unwrap(), &request, &signature));
    }
}
