//! The users of an image, from its own lists.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

/// A user with its groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ImageAccount {
    pub(super) user: u32,
    pub(super) group: u32,
    more_groups: Vec<u32>,
    name: Option<String>,
    home: String,
}

impl ImageAccount {
    /// Finds `NAME`, `ID`, or either with `:GROUP`, in the lists of a root directory.
    pub(super) fn find(root: &Path, text: &str) -> io::Result<Self> {
        let list = |name: &str| {
            let text = fs::read(root.join("etc").join(name)).unwrap_or_default();
            String::from_utf8_lossy(&text).into_owned()
        };
        let (users, groups) = (list("passwd"), list("group"));
        let (user, group) = match text.split_once(':') {
            Some((user, group)) => (user, Some(group)),
            None => (text, None),
        };
        let fields = |line: &'_ str| line.split(':').map(str::to_owned).collect::<Vec<_>>();
        let found = users
            .lines()
            .map(fields)
            .find(|fields| fields.len() >= 6 && (fields[0] == user || fields[2] == user));
        let number = |text: &str| text.parse::<u32>().ok();
        let (id, own_group, name, home) = match &found {
            Some(fields) => {
                let (Some(id), Some(group)) = (number(&fields[2]), number(&fields[3])) else {
                    return Err(io::Error::other(format!(
                        "the entry of user {user} in /etc/passwd is malformed"
                    )));
                };
                (id, group, Some(fields[0].clone()), fields[5].clone())
            }
            None => match number(user) {
                Some(id) => (id, 0, None, "/".to_owned()),
                None => return Err(io::Error::other(format!("user {user} is not in /etc/passwd"))),
            },
        };
        let mut all = groups.lines().map(fields).filter(|fields| fields.len() >= 3);
        let Some(wanted) = group else {
            let member = |fields: &Vec<String>| {
                let members = fields.get(3).map(String::as_str).unwrap_or_default();
                name.as_deref().is_some_and(|name| members.split(',').any(|member| member == name))
            };
            let more_groups = all.filter(member).filter_map(|fields| number(&fields[2])).collect();
            return Ok(Self { user: id, group: own_group, more_groups, name, home });
        };
        let listed = all.find(|fields| fields[0] == wanted).and_then(|fields| number(&fields[2]));
        let group = listed.or_else(|| number(wanted));
        let group = group
            .ok_or_else(|| io::Error::other(format!("group {wanted} is not in /etc/group")))?;
        Ok(Self { user: id, group, more_groups: vec![], name, home })
    }
}

/// Becomes a program that runs as a user. Returns only if that fails.
pub(super) fn exec(user: &str, program: &str, arguments: &[&str]) -> io::Error {
    let become_user = || -> io::Result<ImageAccount> {
        let account = ImageAccount::find(Path::new("/"), user)?;
        let groups: Vec<Gid> = account.more_groups.iter().map(|id| Gid::from_raw(*id)).collect();
        let (id, group) = (Uid::from_raw(account.user), Gid::from_raw(account.group));
        set_thread_groups(&groups)?;
        set_thread_res_gid(group, group, group)?;
        set_thread_res_uid(id, id, id)?;
        Ok(account)
    };
    let account = match become_user() {
        Ok(account) => account,
        Err(error) => {
            return io::Error::new(error.kind(), format!("cannot run as user {user}: {error}"));
        }
    };
    let mut command = Command::new(program);
    command.args(arguments).env("HOME", &account.home);
    match &account.name {
        Some(name) => command.env("USER", name).env("LOGNAME", name),
        None => command.env_remove("USER").env_remove("LOGNAME"),
    };
    let error = command.exec();
    io::Error::new(error.kind(), format!("cannot run {program}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_and_groups_are_found_by_name_and_by_number() {
        let root = tempfile::tempdir().unwrap().keep();
        fs::create_dir_all(root.join("etc")).unwrap();
        let users = "root:x:0:0:root:/root:/bin/sh\napp:x:7:8::/srv:/bin/sh\nbad:x:y:1::/:\n";
        fs::write(root.join("etc/passwd"), users).unwrap();
        fs::write(root.join("etc/group"), "root:x:0:\nstaff:x:50:app,b\nother:x:9:b\n").unwrap();
        let find = |text: &str| {
            let found = ImageAccount::find(&root, text);
            found
                .map(|it| (it.user, it.group, it.more_groups, it.home))
                .map_err(|it| it.to_string())
        };
        let account = |user, group, more: &[u32], home: &str| {
            Ok((user, group, more.to_vec(), home.to_owned()))
        };
        assert_eq!(find("app"), account(7, 8, &[50], "/srv"));
        assert_eq!(find("7"), account(7, 8, &[50], "/srv"));
        assert_eq!(find("app:other"), account(7, 9, &[], "/srv"));
        assert_eq!(find("1234"), account(1234, 0, &[], "/"));
        assert_eq!(find("1234:5678"), account(1234, 5678, &[], "/"));
        assert_eq!(find("who"), Err("user who is not in /etc/passwd".to_owned()));
        assert_eq!(find("app:who"), Err("group who is not in /etc/group".to_owned()));
        assert!(find("bad").is_err());
        fs::remove_dir_all(root).unwrap();
    }
}
