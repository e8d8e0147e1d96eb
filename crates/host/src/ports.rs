//! The TCP ports that programs listen on, from the socket tables of the kernel.

use std::collections::BTreeSet;
use std::{fs, io};

/// Returns the ports of this process's network namespace.
pub(crate) fn listening() -> io::Result<BTreeSet<u16>> {
    let mut ports = in_table(&fs::read_to_string("/proc/self/net/tcp")?);
    match fs::read_to_string("/proc/self/net/tcp6") {
        Ok(table) => ports.extend(in_table(&table)),
        // A kernel without IPv6.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    Ok(ports)
}

/// Returns the local ports of sockets in the state LISTEN (0A).
fn in_table(table: &str) -> BTreeSet<u16> {
    let port = |line: &str| {
        let mut fields = line.split_whitespace().skip(1);
        let (local, state) = (fields.next()?, fields.nth(1)?);
        let (_, port) = local.rsplit_once(':').filter(|_| state == "0A")?;
        u16::from_str_radix(port, 16).ok()
    };
    table.lines().filter_map(port).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listening_sockets_are_ports() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue\n   \
            0: 0100007F:1F41 00000000:0000 0A 00000000:00000000 00:00000000\n   \
            1: 0100007F:1F42 0100007F:D431 01 00000000:00000000 00:00000000\n   \
            0: 00000000000000000000000000000000:0050 0000:0000 0A 00000000:00000000\n";
        assert_eq!(in_table(table), BTreeSet::from([80, 8001]));
        assert_eq!(in_table(""), BTreeSet::new());
    }

    #[test]
    fn a_port_of_this_process_is_listed() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(listening().unwrap().contains(&port));
    }
}
