//! The connection of a bridge to a server: finds it, starts one if there is none, and finds it again.

use std::{
    fs::OpenOptions,
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, bail};
use tokio::{
    sync::Mutex,
    time::{Instant, sleep},
};

use super::client::{ApiClient, ServerArgs};

/// How long to wait for a server to be ready, one that is being restarted included.
const READY_TIMEOUT: Duration = Duration::from_secs(30);
/// How long another process may take to restart a server before one is started here.
const RESTART_GRACE: Duration = Duration::from_secs(2);
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// The file in the home directory that has the output of a server started here.
const LOG_FILE: &str = "server.log";

/// A server that was found, and may have to be found again.
pub(super) struct ServerLink {
    target: ServerArgs,
    client: Mutex<Option<ApiClient>>,
}

impl ServerLink {
    pub(super) fn new(target: ServerArgs) -> ServerLink {
        ServerLink { target, client: Mutex::new(None) }
    }

    /// Takes note that the connection was lost; the next call of `client` finds the server again.
    pub(super) async fn lost(&self) {
        *self.client.lock().await = None;
    }

    /// Returns a client of a server that is ready. One task at a time looks for it.
    pub(super) async fn client(&self) -> anyhow::Result<ApiClient> {
        let mut known = self.client.lock().await;
        if let Some(client) = &*known {
            return Ok(client.clone());
        }
        let client = self.find().await?;
        *known = Some(client.clone());
        Ok(client)
    }

    async fn find(&self) -> anyhow::Result<ApiClient> {
        let begun = Instant::now();
        let mut started: Option<Child> = None;
        loop {
            let reason = match self.ready().await {
                Ok(client) => return Ok(client),
                Err(reason) => reason,
            };
            if begun.elapsed() > READY_TIMEOUT {
                return Err(reason.context("no server is ready"));
            }
            match &mut started {
                None if self.target.is_local() && begun.elapsed() >= self.grace() => {
                    started = Some(self.start()?);
                }
                Some(child) => {
                    // Another process may have started one first; then that one gets ready.
                    if let Some(status) = child.try_wait()?
                        && begun.elapsed() > RESTART_GRACE + RESTART_GRACE
                    {
                        let log = self.target.home()?.join(LOG_FILE);
                        bail!("the server ended with {status}; see {}", log.display());
                    }
                }
                None => {}
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    /// A home with an address had a server, which may be restarting.
    fn grace(&self) -> Duration {
        let has_address = self.target.home().is_ok_and(|home| home.join("address").exists());
        if has_address { RESTART_GRACE } else { Duration::ZERO }
    }

    async fn ready(&self) -> anyhow::Result<ApiClient> {
        let client = self.target.client()?;
        client.get("/readyz").await?;
        Ok(client)
    }

    /// Starts a server that outlives this process.
    fn start(&self) -> anyhow::Result<Child> {
        let home = self.target.home()?;
        std::fs::create_dir_all(&home)
            .with_context(|| format!("cannot create {}", home.display()))?;
        let log = home.join(LOG_FILE);
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&log)
            .with_context(|| format!("cannot write {}", log.display()))?;
        let program = std::env::current_exe().context("cannot find the path of this program")?;
        Command::new(program)
            .arg("serve")
            .arg("--home")
            .arg(&home)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            // Signals of the client's terminal do not reach it.
            .process_group(0)
            .spawn()
            .context("cannot start a server")
    }
}
