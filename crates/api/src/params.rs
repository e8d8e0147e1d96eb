//! Path parameters, as the API document describes them.

use utoipa::IntoParams;

macro_rules! ids {
    ($($name:ident { $($(#[$doc:meta])+ $param:ident,)+ })+) => {$(
        #[derive(IntoParams)]
        #[into_params(parameter_in = Path)]
        #[expect(dead_code, reason = "only documents the parameter; the handler's own extractor reads it")]
        pub(super) struct $name { $($(#[$doc])+ $param: String,)+ }
    )+};
}

ids! {
    ThreadPath {
        /// Id of the thread
        tid,
    }
    TerminalPath {
        /// Id of the terminal
        id,
    }
    CommandPath {
        /// Id of the command
        id,
    }
    HandoffPath {
        /// Id of the hand-off
        id,
    }
    SandboxPath {
        /// Id of the sandbox
        id,
    }
    LeasePath {
        /// Id of the lease
        id,
    }
    ProjectPath {
        /// Id of the project
        id,
    }
}
