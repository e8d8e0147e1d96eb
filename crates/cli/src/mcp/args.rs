//! The options of the bridge, which an installed entry contains as well.

use clap::Args;

use crate::client::ServerArgs;

#[derive(Debug, Clone, Args)]
pub(super) struct BridgeArgs {
    /// Thread of tool calls that name none
    #[arg(long, value_name = "NAME")]
    pub(super) thread: Option<String>,
    #[command(flatten)]
    pub(super) target: ServerArgs,
}
