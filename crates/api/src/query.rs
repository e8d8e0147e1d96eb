//! Query strings: a parameter is given once.
//!
//! Who checks a signature and who acts on the request must read the same value. With a repeated
//! parameter one may take the first and the other the last, so the guard refuses it for all routes.

use std::{borrow::Cow, collections::HashSet};

use axum::http::Uri;

use super::{door::Doors, error::Problem};

/// Refuses a parameter that is given twice, unless it is a list that clients repeat.
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
