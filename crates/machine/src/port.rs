//! Streams to programs that listen inside a sandbox.

use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::sync::oneshot;

use provider::{Connection, ProviderError};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Opens a stream to a port in the network namespace of a process.
pub(crate) async fn dial(pid: i32, port: u16) -> Result<Connection, ProviderError> {
    let failed =
        |source: io::Error| ProviderError::failed("connect to a port in a sandbox", source);
    let (sender, opened) = oneshot::channel();
    // A new thread enters the namespace and ends there: a pool thread would have to switch back.
    std::thread::Builder::new()
        .name("dial".to_owned())
        .spawn(move || {
            let entered = enter(pid);
            let _ = sender.send(entered.and_then(|()| connect(port)));
        })
        .map_err(failed)?;
    let ended = |_| io::Error::other("the connecting thread panicked");
    let stream = opened.await.map_err(ended).and_then(|opened| opened).map_err(failed)?;
    stream.set_nonblocking(true).map_err(failed)?;
    let stream = tokio::net::TcpStream::from_std(stream).map_err(failed)?;
    Ok(Box::new(stream))
}

fn enter(pid: i32) -> io::Result<()> {
    let network = File::open(format!("/proc/{pid}/ns/net"))?;
    Ok(move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))?)
}

/// Connects to a port on the loopback of this thread's network namespace. Blocking.
fn connect(port: u16) -> io::Result<TcpStream> {
    let at = |address: IpAddr| {
        TcpStream::connect_timeout(&SocketAddr::new(address, port), CONNECT_TIMEOUT)
    };
    at(Ipv4Addr::LOCALHOST.into()).or_else(|refused| {
        // The error of the IPv4 address is the one that a client expects.
        at(Ipv6Addr::LOCALHOST.into()).map_err(|_| refused)
    })
}
