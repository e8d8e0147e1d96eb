//! Keys of sandboxes, volumes, ports and uploads, and the signatures made with them.
//!
//! A key has one purpose: what shows a port runs no command, and what opens a file opens no other. Every
//! key is a keyed hash of what it opens and of its [`Purpose`], so that none has to be stored. The
//! hashing key is derived from the server's own token: another token in the file ends them all.

use base64::{Engine, engine::general_purpose::STANDARD_NO_PAD};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use model::ThreadId;

/// The prefix of every access token.
const ACCESS: &str = "ea_";
/// The prefix of every traffic token.
const TRAFFIC: &str = "et_";
/// Hexadecimal digits of the hash in a token.
const DIGITS: usize = 40;

/// Makes and checks the tokens of sandboxes.
pub struct Keys([u8; 32]);

/// What a key is for. It is part of every hash, so that a key of one purpose is never one of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// The daemon of a sandbox: its programs and files.
    Access,
    /// The ports that programs of a sandbox listen on.
    Traffic,
    /// One port of a sandbox for a time.
    Port,
    /// The signing of links to files of a sandbox.
    Signing,
    /// The content of a volume.
    Volume,
    /// The upload of the files of one hash.
    Upload,
}

impl Purpose {
    /// No name is the beginning of another, and each ends where what it opens begins.
    fn domain(self) -> &'static str {
        match self {
            Purpose::Access => "access\0",
            Purpose::Traffic => "traffic\0",
            Purpose::Port => "port\0",
            Purpose::Signing => "signing\0",
            Purpose::Volume => "volume\0",
            Purpose::Upload => "upload\0",
        }
    }
}

/// What a signature allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// To read a file.
    Read,
    Write,
}

/// What a signature is made over.
#[derive(Debug, Clone, Copy)]
pub struct Signed<'a> {
    /// The file, as it is asked for.
    pub path: &'a str,
    /// What is to be done with it.
    pub operation: Operation,
    pub user: &'a str,
    /// Until when, in seconds since 1970.
    pub until: Option<i64>,
}

impl Keys {
    /// The keys of a server with this token.
    pub fn new(token: &str) -> Keys {
        Keys(blake3::derive_key("stead 2026-11-15 access to one sandbox", token.as_bytes()))
    }

    fn hash(&self, purpose: Purpose, what: &str) -> String {
        let text = format!("{}{what}", purpose.domain());
        blake3::keyed_hash(&self.0, text.as_bytes()).to_hex().to_string()
    }

    fn token(&self, purpose: Purpose, prefix: &str, id: &ThreadId) -> String {
        format!("{prefix}{id}_{}", &self.hash(purpose, id.as_str())[..DIGITS])
    }

    fn sandbox_of(&self, purpose: Purpose, prefix: &str, given: &str) -> Option<ThreadId> {
        let (id, _) = given.strip_prefix(prefix)?.rsplit_once('_')?;
        let id: ThreadId = id.parse().ok()?;
        same(&self.token(purpose, prefix, &id), given).then_some(id)
    }

    /// The access token of a sandbox, which opens its programs and files.
    pub fn access(&self, id: &ThreadId) -> String {
        self.token(Purpose::Access, ACCESS, id)
    }

    /// The sandbox that an access token opens.
    pub fn opens(&self, given: &str) -> Option<ThreadId> {
        self.sandbox_of(Purpose::Access, ACCESS, given)
    }

    /// The traffic token of a sandbox, which opens its ports.
    pub fn traffic(&self, id: &ThreadId) -> String {
        self.token(Purpose::Traffic, TRAFFIC, id)
    }

    /// The sandbox whose ports a traffic token opens.
    pub fn opens_traffic(&self, given: &str) -> Option<ThreadId> {
        self.sandbox_of(Purpose::Traffic, TRAFFIC, given)
    }

    /// Whether a signature was made with the access token of this sandbox.
    pub fn signed(&self, id: &ThreadId, what: &Signed<'_>, signature: &str) -> bool {
        same(&sign(&self.access(id), what), signature)
    }
}

/// The prefix of a token of [`Keys::port`].
const PORT: &str = "s";
/// Digits of a UUID, and of the hash of such a token.
const UUID_DIGITS: usize = 32;
const PORT_DIGITS: usize = 16;

impl Keys {
    /// A name in place of a sandbox's that opens one port until a time, in seconds since 1970; short
    /// enough for a label of a host. `None` for a sandbox whose id is no UUID.
    pub fn port(&self, id: &ThreadId, port: u16, until: i64) -> Option<String> {
        let id = uuid::Uuid::try_parse(id.as_str()).ok()?.simple().to_string();
        let hash = self.hash(Purpose::Port, &format!("{id} {port} {until}"));
        Some(format!("{PORT}{id}{}{until:x}", &hash[..PORT_DIGITS]))
    }

    /// The sandbox that such a name stands for at this time.
    pub fn opens_port(&self, given: &str, port: u16, now: i64) -> Option<ThreadId> {
        let rest = given.strip_prefix(PORT).filter(|rest| rest.is_ascii())?;
        let (id, rest) = rest.split_at_checked(UUID_DIGITS)?;
        let until = i64::from_str_radix(rest.get(PORT_DIGITS..)?, 16).ok()?;
        let id: ThreadId = uuid::Uuid::try_parse(id).ok()?.to_string().parse().ok()?;
        (same(&self.port(&id, port, until)?, given) && now <= until).then_some(id)
    }
}

impl Keys {
    /// What links to files of a sandbox are signed with, as long as the salt is the same.
    pub fn signing(&self, id: &ThreadId, salt: &str) -> String {
        self.hash(Purpose::Signing, &format!("{id} {salt}"))
    }
}

/// The prefix of a volume's key.
const VOLUME: &str = "ev_";

impl Keys {
    /// What opens the content of a volume, and nothing else.
    pub fn volume(&self, id: &str) -> String {
        format!("{VOLUME}{}", &self.hash(Purpose::Volume, id)[..DIGITS])
    }

    /// Whether that opens this volume; `None` for what is no key of a volume.
    pub fn opens_volume(&self, id: &str, given: &str) -> Option<bool> {
        given.starts_with(VOLUME).then(|| same(&self.volume(id), given))
    }
}

impl Keys {
    /// The signature that allows the upload of the files of one hash until a time, in seconds since 1970.
    pub fn upload(&self, hash: &str, until: i64) -> String {
        self.hash(Purpose::Upload, &format!("{hash} {until}"))[..DIGITS].to_owned()
    }

    /// Whether this lets them, at this time.
    pub fn opens_upload(&self, hash: &str, until: i64, given: &str, now: i64) -> bool {
        same(&self.upload(hash, until), given) && now <= until
    }
}

/// Whether two secrets are the same, in a time that does not tell where they differ.
pub fn same(one: &str, other: &str) -> bool {
    one.as_bytes().ct_eq(other.as_bytes()).into()
}

/// RFC 2104 with SHA-256.
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

/// The signature that the holder of an access token makes.
fn sign(token: &str, what: &Signed<'_>) -> String {
    let operation = match what.operation {
        Operation::Read => "read",
        Operation::Write => "write",
    };
    let mut text = format!("{}:{operation}:{}:{token}", what.path, what.user);
    if let Some(until) = what.until {
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
    fn a_key_of_one_purpose_is_none_of_another() {
        let keys = Keys::new("secret");
        let id: ThreadId = "iabc".parse().unwrap();
        let (access, traffic) = (keys.access(&id), keys.traffic(&id));
        assert_eq!(keys.opens_traffic(&traffic), Some(id.clone()));
        assert_eq!((keys.opens(&traffic), keys.opens_traffic(&access)), (None, None));
        // Nor with the other's beginning.
        assert_eq!(keys.opens(&traffic.replace(TRAFFIC, ACCESS)), None);
        assert_eq!(keys.opens_traffic(&access.replace(ACCESS, TRAFFIC)), None);
        // Nor for a sandbox whose id reads like what another purpose hashes.
        let odd: ThreadId = "volume x".parse().unwrap();
        let hash = |key: &str| key.rsplit('_').next().unwrap().to_owned();
        assert_ne!(hash(&keys.access(&odd)), hash(&keys.volume("x")));
        let what = Signed { path: "/a", operation: Operation::Read, user: "", until: None };
        assert!(!keys.signed(&id, &what, &sign(&traffic, &what)));
    }

    #[test]
    fn a_name_of_a_port_opens_that_port_until_its_time_is_over() {
        let keys = Keys::new("secret");
        let id: ThreadId = "0193b3a5-7c1e-7b6e-8f1a-0c9d2e4f6a81".parse().unwrap();
        let name = keys.port(&id, 65_535, 1_800_000_000).unwrap();
        // With its port it is one label of a host.
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
    fn a_code_is_that_of_the_standard() {
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
    fn a_link_for_files_is_for_one_hash_until_its_time_is_over() {
        let keys = Keys::new("secret");
        let given = keys.upload("abc", 100);
        assert!(keys.opens_upload("abc", 100, &given, 100));
        assert!(!keys.opens_upload("abc", 100, &given, 101));
        assert!(!keys.opens_upload("abd", 100, &given, 0));
        assert!(!keys.opens_upload("abc", 1000, &given, 0));
        assert!(!Keys::new("another").opens_upload("abc", 100, &given, 0));
    }

    #[test]
    fn a_signature_is_the_one_the_clients_make() {
        let what = Signed { path: "/a", operation: Operation::Read, user: "", until: Some(7) };
        // printf '/a:read::tok:7' | sha256sum, as base64 without its padding.
        assert_eq!(sign("tok", &what), "v1_i2GWl3dD43Ob2g2TL2mgAp+VSqI2bWt4jfqEE0VL8aI");
        let keys = Keys::new("secret");
        let id: ThreadId = "i1".parse().unwrap();
        let signature = sign(&keys.access(&id), &what);
        assert!(keys.signed(&id, &what, &signature));
        for other in [
            Signed { path: "/b", ..what },
            Signed { operation: Operation::Write, ..what },
            Signed { user: "root", ..what },
            Signed { until: None, ..what },
        ] {
            assert!(!keys.signed(&id, &other, &signature), "{other:?}");
        }
        assert!(!keys.signed(&"i2".parse().unwrap(), &what, &signature));
    }
}
