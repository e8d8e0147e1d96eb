//! The query of `/files`: the file, the user and the signature of a link.
//!
//! The guard checks the signature and the handler opens the file, both with the result of [`FileQuery::parse`]. A
//! repeated parameter is refused, so that a query has only one interpretation.

use axum::{
    extract::FromRequestParts,
    http::{StatusCode, request::Parts},
};

use super::E2bRefusal;
use adapter::Adapter;
use api::key::{Operation, Signed};
use model::{ThreadId, Timestamp};

/// The parsed query of a request to `/files`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FileQuery {
    path: Option<String>,
    user: Option<String>,
    signature: Option<String>,
    expires: Option<i64>,
}

impl FileQuery {
    /// Parses a query.
    ///
    /// # Errors
    /// A message about a repeated parameter or an expiry that is not a number.
    pub fn parse(query: &str) -> Result<FileQuery, &'static str> {
        let mut found = FileQuery::default();
        let mut expires = None;
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let field = match &*name {
                "path" => &mut found.path,
                "username" => &mut found.user,
                "signature" => &mut found.signature,
                "signature_expiration" => &mut expires,
                _ => continue,
            };
            if field.replace(value.into_owned()).is_some() {
                return Err("a query parameter is given more than once");
            }
        }
        let parse = |text: String| text.parse().map_err(|_| "signature_expiration is not a number");
        found.expires = expires.map(parse).transpose()?;
        Ok(found)
    }

    pub fn path(&self) -> Option<&str> {
        self.path.as_deref().filter(|path| !path.is_empty())
    }

    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// Whether the query is a signed link.
    pub fn is_signed(&self) -> bool {
        self.signature.is_some()
    }

    /// Checks the signature of a link; `None` without one. If the request does not name a sandbox, the sandbox whose
    /// key matches the signature is used.
    pub fn signature(
        &self,
        app: &Adapter,
        operation: Operation,
        named: Option<&ThreadId>,
    ) -> Option<Signature> {
        let signature = self.signature.as_deref()?;
        if self.expires.is_some_and(|until| until < Timestamp::now().as_second()) {
            return Some(Signature::Invalid("signature is already expired"));
        }
        let signed = Signed {
            path: self.path.as_deref().unwrap_or_default(),
            operation,
            user: self.user.as_deref().unwrap_or_default(),
            until: self.expires,
        };
        let is_signer = |id: &ThreadId| app.keys.signed(id, &signed, signature);
        let signer = match named {
            Some(named) => Some(named.clone()).filter(is_signer),
            None => app.index().ids().into_iter().find(is_signer),
        };
        Some(signer.map_or(Signature::Invalid("invalid signature"), Signature::Valid))
    }
}

/// The result of a signature check.
pub enum Signature {
    /// The link was signed with the key of this sandbox.
    Valid(ThreadId),
    Invalid(&'static str),
}

impl FromRequestParts<Adapter> for FileQuery {
    type Rejection = E2bRefusal;

    async fn from_request_parts(parts: &mut Parts, _: &Adapter) -> Result<Self, E2bRefusal> {
        FileQuery::parse(parts.uri.query().unwrap_or_default())
            .map_err(|message| E2bRefusal::new(StatusCode::BAD_REQUEST, message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_parameter_is_refused() {
        let query = FileQuery::parse("path=%2Fa&username=root&signature=v1_x&other=1&other=2");
        let query = query.unwrap();
        assert_eq!((query.path(), query.user()), (Some("/a"), Some("root")));
        assert!(query.is_signed());
        assert_eq!(FileQuery::parse("path=").unwrap().path(), None);
        for query in [
            "path=a&path=a",
            "path=a&%70ath=b",
            "username=&username=root",
            "signature=x&signature=",
            "signature_expiration=1&signature_expiration=2",
            "signature_expiration=x",
        ] {
            assert!(FileQuery::parse(query).is_err(), "{query}");
        }
    }
}
