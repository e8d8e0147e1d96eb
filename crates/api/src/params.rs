//! The ids in paths, as the API's description names them.

use utoipa::IntoParams;

macro_rules! ids {
    ($($name:ident { $($(#[$doc:meta])+ $param:ident,)+ })+) => {$(
        #[derive(IntoParams)]
        #[into_params(parameter_in = Path)]
        #[expect(dead_code, reason = "only described; the handler's own extractor reads it")]
        pub(super) struct $name { $($(#[$doc])+ $param: String,)+ }
    )+};
}

ids! {
    ThreadPath {
        /// The thread
        tid,
    }
    TerminalPath {
        /// The terminal
        id,
    }
    CommandPath {
        /// The command
        id,
    }
    LeasePath {
        /// The lease
        id,
    }
    ProjectPath {
        /// The project
        id,
    }
}
