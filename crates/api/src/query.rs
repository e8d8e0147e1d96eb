//! Refuses repeated query parameters.
//!
//! The code that checks a signature and the handler must read the same value. Of a repeated parameter one may
//! read the first and the other the last value, so the guard refuses it on all routes.

use std::{borrow::Cow, collections::HashSet};

use axum::http::Uri;

use super::{door::Doors, error::Problem};

/// Refuses a repeated parameter, unless it is a list.
pub(super) fn check(uri: &Uri, doors: &Doors) -> Result<(), Problem> {
    let mut seen: HashSet<Cow<'_, str>> = HashSet::new();
    for (name, _) in form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()) {
        if doors.iter().any(|door| door.is_list(uri.path(), &name)) {
            continue;
        }
        if let Some(name) = seen.replace(name) {
            return Err(Problem::query(&name, "given more than once"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_parameter_is_named() {
        let refused = |uri: &str| {
            check(&uri.parse().unwrap(), &Doors::default()).err().map(|it| it.detail().to_owned())
        };
        assert_eq!(refused("/files"), None);
        assert_eq!(refused("/files?path=/a&username=user&signature=x"), None);
        let twice = |name: &str| Some(format!("/{name}: given more than once"));
        assert_eq!(refused("/files?path=/a&path=/a"), twice("path"));
        assert_eq!(refused("/files?path=/a&x=1&p%61th=/b"), twice("path"));
        assert_eq!(refused("/files?path&path="), twice("path"));
        assert_eq!(refused("/files?state=1&state=2"), twice("state"));
    }
}
