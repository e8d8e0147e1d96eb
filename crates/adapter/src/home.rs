//! Sets up the user account of a new sandbox: a name, a home directory, and the programs that vendors' sandboxes
//! have.

use std::io::Read;

use files::{Above, Directory, FileError, FileKind, Relative, memory::Expect};

/// The directory of a user's own programs, below the home directory.
pub const PROGRAMS: &str = ".local/bin";
/// The limit of bytes read from `/etc/passwd` and `/etc/group`.
const MAX_USER_LIST_BYTES: u64 = 1 << 20;
/// The `.profile` of a login shell: the user's own programs come first in the path.
const PROFILE: &str = "PATH=\"$HOME/.local/bin:$PATH\"\n";

/// The `sudo` program, which runs a program under the name of root.
const SUDO: &str = include_str!("home/sudo.sh");
/// The `whoami` program of root: `/etc/passwd` lists the user's name before root's.
const WHOAMI: &str = include_str!("home/whoami.sh");
/// The home directory of root, below `/`.
const ROOT_HOME: &str = "root";

/// The user of a sandbox: the only account that its programs run as.
#[derive(Debug, Clone)]
pub struct Account {
    pub name: String,
    /// The absolute path of the home directory.
    pub home: String,
}

impl Account {
    /// Creates the home directory. Blocking.
    pub fn make_home(&self, directory: &Directory) -> Result<(), FileError> {
        directory.make_directories(&self.at("")?)
    }

    /// Creates the home directory with its programs, and adds the name to `/etc/passwd` and `/etc/group`. Blocking.
    pub fn set_up(&self, directory: &Directory) -> Result<(), FileError> {
        self.make_home(directory)?;
        let home = self.home.trim_matches('/');
        for (home, program, text) in [(home, "sudo", SUDO), (ROOT_HOME, "whoami", WHOAMI)] {
            let profile = Relative::parse(&format!("{home}/.profile"))?;
            if let Err(FileError::Missing { .. }) = directory.stat(&profile) {
                write(directory, &profile, PROFILE)?;
            }
            let program = Relative::parse(&format!("{home}/{PROGRAMS}/{program}"))?;
            let mut part = directory.write(&program, Above::Make, Expect::Anything)?;
            part.write(text.as_bytes())?;
            part.make_executable()?;
            part.finish()?;
        }
        if let Some(python) = python(directory)? {
            match directory.make_link(python, &self.at(&format!("{PROGRAMS}/python"))?) {
                Ok(()) | Err(FileError::Exists { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        for (file, line) in [
            ("etc/passwd", format!("{}:x:0:0::{}:/bin/bash\n", self.name, self.home)),
            ("etc/group", format!("{}:x:0:\n", self.name)),
        ] {
            add_name(directory, &Relative::parse(file)?, &self.name, &line)?;
        }
        Ok(())
    }

    fn at(&self, below: &str) -> Result<Relative, FileError> {
        let home = self.home.trim_matches('/');
        Relative::parse(format!("{home}/{below}").trim_end_matches('/'))
    }
}

/// The target of a link `python`, if the sandbox has only `python3`.
fn python(directory: &Directory) -> Result<Option<&'static str>, FileError> {
    let exists = |path: &str| {
        let found = directory.stat_followed(&Relative::parse(path)?);
        Ok::<_, FileError>(found.is_ok_and(|found| found.kind == FileKind::File))
    };
    if exists("usr/bin/python")? || exists("usr/local/bin/python")? {
        return Ok(None);
    }
    for (path, name) in [
        ("usr/bin/python3", "/usr/bin/python3"),
        ("usr/local/bin/python3", "/usr/local/bin/python3"),
    ] {
        if exists(path)? {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

/// Adds a name as the first line of a file, so that lookups by number return it.
fn add_name(
    directory: &Directory,
    file: &Relative,
    name: &str,
    line: &str,
) -> Result<(), FileError> {
    let mut text = String::new();
    match directory.read(file) {
        Ok((file, stat)) => {
            let read = file.take(MAX_USER_LIST_BYTES).read_to_string(&mut text);
            read.map_err(|error| FileError::from_io("read", &stat.path, error))?;
        }
        Err(FileError::Missing { .. }) => {}
        Err(error) => return Err(error),
    }
    let is_listed = text.lines().any(|line| line.split(':').next() == Some(name));
    if is_listed { Ok(()) } else { write(directory, file, &format!("{line}{text}")) }
}

fn write(directory: &Directory, path: &Relative, text: &str) -> Result<(), FileError> {
    let mut part = directory.write(path, Above::Make, Expect::Anything)?;
    part.write(text.as_bytes())?;
    part.finish().map(drop)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;
    use files::Reach;

    #[test]
    fn an_account_has_a_name_a_home_directory_and_python() {
        let root = std::env::temp_dir().join(format!("stead-home-{}", uuid::Uuid::now_v7()));
        for name in ["etc", "usr/bin"] {
            fs::create_dir_all(root.join(name)).unwrap();
        }
        fs::write(root.join("usr/bin/python3"), "").unwrap();
        fs::write(root.join("etc/passwd"), "root:x:0:0:root:/root:/bin/bash\n").unwrap();
        let directory = Directory::open(&root, None, Reach::InRoot).unwrap().cached();
        let account = Account { name: "user".to_owned(), home: "/home/user".to_owned() };
        let check = || {
            account.set_up(&directory).unwrap();
            let text = fs::read_to_string(root.join("etc/passwd")).unwrap();
            let expected = "user:x:0:0::/home/user:/bin/bash\nroot:x:0:0:root:/root:/bin/bash\n";
            assert_eq!(text, expected);
            assert_eq!(fs::read_to_string(root.join("etc/group")).unwrap(), "user:x:0:\n");
            for program in ["home/user/.local/bin/sudo", "root/.local/bin/whoami"] {
                let mode = fs::metadata(root.join(program)).unwrap().permissions().mode();
                assert_eq!(mode & 0o777, 0o755, "{program}");
            }
            assert!(root.join("root/.profile").exists());
            let python = fs::read_link(root.join("home/user/.local/bin/python")).unwrap();
            assert_eq!(python.to_str(), Some("/usr/bin/python3"));
        };
        check();
        fs::write(root.join("home/user/.profile"), "own").unwrap();
        check();
        assert_eq!(fs::read_to_string(root.join("home/user/.profile")).unwrap(), "own");
        fs::remove_dir_all(root).unwrap();
    }
}
