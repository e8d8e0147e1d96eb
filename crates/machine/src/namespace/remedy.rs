//! Shell commands that meet the requirements of sandboxes, for a person to run.

use std::path::Path;

use crate::tools::find_program;

pub const USER_NAMESPACES: &str = "/proc/sys/user/max_user_namespaces";

/// Package managers, each with its command that installs packages.
const INSTALLERS: [(&str, &str); 5] = [
    ("apt-get", "apt-get install -y"),
    ("dnf", "dnf install -y"),
    ("apk", "apk add"),
    ("pacman", "pacman -S --noconfirm"),
    ("zypper", "zypper install -y"),
];

/// Returns the command that installs packages on this machine, if its package manager is known.
pub fn install(packages: &str) -> Option<String> {
    let found = INSTALLERS.into_iter().find(|(it, _)| find_program(Path::new(it)).is_some());
    found.map(|(_, command)| format!("{command} {packages}"))
}

/// Returns the command that changes a setting of the kernel until the next boot.
pub fn set(file: &str, value: &str) -> String {
    format!("sysctl -w {}={value}", name_of(file))
}

/// Returns the name of a setting of the kernel, given its file.
pub fn name_of(file: &str) -> String {
    file.trim_start_matches("/proc/sys/").replace('/', ".")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_of_the_kernel_is_set_by_its_name() {
        assert_eq!(set(USER_NAMESPACES, "15000"), "sysctl -w user.max_user_namespaces=15000");
    }
}
