//! Streams to programs that listen inside a sandbox.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::sync::oneshot;

use provider::{Connection, ProviderError};

/// How long a program has to take a connection in.
const PATIENCE: Duration = Duration::from_secs(10);

/// Opens a stream to a port of the network that a process is in.
pub(crate) async fn dial(pid: i32, port: u16) -> Result<Connection, ProviderError> {
    let failed = |source: io::Error| ProviderError::failed("reach a port in a sandbox", source);
    let (sender, opened) = oneshot::channel();
    // A thread of its own, which goes into the network and ends there: one of the server's pool would
    // have to find its way back.
    std::thread::Builder::new()
        .name("dial".to_owned())
        .spawn(move || {
            let entered = enter(pid);
            let _ = sender.send(entered.and_then(|()| connect(port)));
        })
        .map_err(failed)?;
    let gone = |_| io::Error::other("the thread is gone");
    let stream = opened.await.map_err(gone).and_then(|opened| opened).map_err(failed)?;
    stream.set_nonblocking(true).map_err(failed)?;
    let stream = tokio::net::TcpStream::from_std(stream).map_err(failed)?;
    Ok(Box::new(stream))
}

fn enter(pid: i32) -> io::Result<()> {
    let network = File::open(format!("/proc/{pid}/ns/net"))?;
    Ok(move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))?)
}

/// Connects to a program that listens on this machine, as the calling thread sees it. Blocking.
fn connect(port: u16) -> io::Result<TcpStream> {
    let at = |address: std::net::IpAddr| {
        TcpStream::connect_timeout(&SocketAddr::new(address, port), PATIENCE)
    };
    at(Ipv4Addr::LOCALHOST.into()).or_else(|refused| {
        // What is said of the usual address is said.
        at(Ipv6Addr::LOCALHOST.into()).map_err(|_| refused)
    })
}
