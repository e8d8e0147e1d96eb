/** Generated from the server's /openapi.json by `npm run generate`. Do not edit. */

export interface paths {
    "/api/commands/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get the receipt of a command.
         * @description The receipt is available while the command runs and after it has ended. With `wait_ms` the response is delayed
         *     until the command ends.
         */
        get: operations["commands.get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/commands/{id}/cancel": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Cancel a command.
         * @description A running command is ended with all its processes, as after a timeout. A queued one is removed from the
         *     queue.
         */
        post: operations["commands.cancel"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/commands/{id}/output": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Read the output of a command as raw bytes.
         * @description Includes later output of background processes that the command started.
         */
        get: operations["commands.output"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/commands/{id}/signal": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Send a signal to the processes of a command. */
        post: operations["commands.signal"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/commands/{id}/stdin": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Write to the standard input of a command. */
        post: operations["commands.write_stdin"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/events": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Stream the events of the server.
         * @description Reports changes of threads, sessions, terminals, commands, hand-offs, leases and projects. The event name is the
         *     event type. `instance_measured` reports the resource usage of an instance while one of its terminals is
         *     watched; it has no id and is not replayed.
         */
        get: operations["events.stream"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/handoffs": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List hand-offs, newest first. */
        get: operations["handoffs.list"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/handoffs/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Get a hand-off, or wait for its answer. */
        get: operations["handoffs.get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/handoffs/{id}/answer": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Answer a hand-off.
         * @description A secret is typed into the program that reads the terminal. This is refused with `echo_on` if the terminal would
         *     show it, and with `not_waiting` if no program waits for input; the hand-off stays open. With an
         *     `Idempotency-Key`, the secret is not part of what identifies the request.
         */
        post: operations["handoffs.answer"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/handoffs/{id}/decline": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Decline a hand-off. */
        post: operations["handoffs.decline"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/images/builds": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List builds of images. */
        get: operations["images.list_builds"];
        put?: never;
        /**
         * Build an image from a Dockerfile.
         * @description The body is a tar archive, compressed with gzip or not, of the files that `COPY` and `ADD` may use, and of the
         *     Dockerfile. The build runs in a sandbox. When it succeeds, the image replaces the one of its name in one step;
         *     until then, and if it fails, that one is unchanged. Sandboxes keep the image that they were created from. A Dockerfile
         *     that is not supported is refused with the number of its line.
         */
        post: operations["images.build"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/images/builds/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Get a build of an image. */
        get: operations["images.get_build"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/images/builds/{id}/log": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Stream the log of a build.
         * @description Sends each line as `line` with `{at, level, text}`; the id of the event is the number of lines until there. `end` with
         *     the build follows the last line.
         */
        get: operations["images.stream_build_log"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/leases": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List all leases in the order of their creation. */
        get: operations["leases.list"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/leases/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Get a lease. */
        get: operations["leases.get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/leases/{id}/destroy": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Destroy the instance of a lease.
         * @description The terminals of the lease keep their state and get a new instance on their next use.
         */
        post: operations["leases.destroy"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/leases/{id}/fork": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Create a lease from a copy of the files of this one.
         * @description Threads can share the new lease.
         */
        post: operations["leases.fork"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/leases/{id}/pause": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Pause the instance of a lease. */
        post: operations["leases.pause"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/leases/{id}/resume": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Resume the instance of a lease. */
        post: operations["leases.resume"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/leases/{id}/snapshot": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Create a named snapshot of the files of a lease. */
        post: operations["snapshots.create"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/leases/{id}/suspend": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Suspend the instance of a lease.
         * @description Ends its processes and keeps its files; the next use starts from them.
         */
        post: operations["leases.suspend"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/ledger": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List automatic deletions and shutdowns, newest first.
         * @description The ledger survives restarts.
         */
        get: operations["ledger.list"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/login-links": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Create a link that signs one browser in. */
        post: operations["server.create_sign_in_link"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/logout": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Sign this browser out. */
        post: operations["server.sign_out"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/projects": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List all projects in the order of their creation. */
        get: operations["projects.list"];
        put?: never;
        /**
         * Create a project.
         * @description The id of the project is the prefix, a dash and eight hexadecimal digits.
         */
        post: operations["projects.create"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/projects/cleanup": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List the projects that a clean-up would warn about or delete now. */
        get: operations["projects.plan_cleanup"];
        put?: never;
        /**
         * Run the clean-up of unused projects now.
         * @description The server also runs it once a day.
         */
        post: operations["projects.run_cleanup"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/projects/import": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Import an exported project.
         * @description The project keeps its id unless the id is taken.
         */
        post: operations["projects.import"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/projects/trash": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List the deleted projects that can be restored. */
        get: operations["projects.list_trash"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/projects/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Get a project. */
        get: operations["projects.get"];
        put?: never;
        post?: never;
        /**
         * Delete a project with its threads.
         * @description A deleted project stays in the trash for some days and can be restored.
         */
        delete: operations["projects.delete"];
        options?: never;
        head?: never;
        /** Change a project. */
        patch: operations["projects.update"];
        trace?: never;
    };
    "/api/projects/{id}/export": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Export a project as a zstd-compressed tar archive. */
        get: operations["projects.export"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/projects/{id}/extend": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Postpone the automatic deletion of a project. */
        post: operations["projects.extend"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/projects/{id}/memories/{store}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List the memories of a project. */
        get: operations["memories.list"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/projects/{id}/memories/{store}/{path}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Read a memory, or list a directory of memories. */
        get: operations["memories.read"];
        /**
         * Write a memory atomically.
         * @description Creates missing parent directories. `If-None-Match: *` and `If-Match` are supported.
         */
        put: operations["memories.write"];
        post?: never;
        /** Delete a memory. */
        delete: operations["memories.delete"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/projects/{id}/pin": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Exempt a project from automatic deletion. */
        post: operations["projects.pin"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/projects/{id}/restore": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Restore a deleted project.
         * @description Restores its threads, the state of their terminals, its memories and its files.
         */
        post: operations["projects.restore"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/projects/{id}/sessions": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List the sessions of a project, newest first.
         * @description Includes ended sessions and those of deleted threads.
         */
        get: operations["projects.list_sessions"];
        put?: never;
        /**
         * Open a session in a project.
         * @description Creates a thread with its session, terminal and lease, or opens a session of an existing thread.
         */
        post: operations["projects.open_session"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/projects/{id}/snapshot": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Write a snapshot of the hot memories of a project.
         * @description Hot memories are durable without it; a recent snapshot makes the next start faster.
         */
        post: operations["memories.snapshot"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/projects/{id}/unpin": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Make a project subject to automatic deletion again. */
        post: operations["projects.unpin"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/providers": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List the providers and their capabilities. */
        get: operations["providers.list"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/sandboxes": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List all sandboxes, newest first. */
        get: operations["sandboxes.list"];
        put?: never;
        /**
         * Create a sandbox and start it.
         * @description With a `name`, the request can be repeated: an existing sandbox of that name is returned unchanged.
         */
        post: operations["sandboxes.create"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/sandboxes/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Get a sandbox. */
        get: operations["sandboxes.get"];
        put?: never;
        post?: never;
        /** Delete a sandbox with its thread and everything in it. */
        delete: operations["sandboxes.delete"];
        options?: never;
        head?: never;
        /** Change the name, labels or lifetime of a sandbox. */
        patch: operations["sandboxes.update"];
        trace?: never;
    };
    "/api/sandboxes/{id}/egress": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List the destinations that programs of a sandbox connected to, and those that were refused.
         * @description The log begins when the sandbox starts and ends when it is suspended. It has at most 512 destinations with
         *     ports for each verdict, each for a day after the last attempt. A sandbox without an instance has an empty log and is not
         *     started. Providers that do not enforce egress rules themselves answer `not_supported`.
         */
        get: operations["sandboxes.egress"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/sandboxes/{id}/extend": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Extend the lifetime of a sandbox.
         * @description A sandbox that already lives longer, or without a limit, is not changed.
         */
        post: operations["sandboxes.extend"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/sandboxes/{id}/fork": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Create a sandbox with a copy of the files of this one.
         * @description The default terminal of the fork continues with the working directory, environment and functions of the
         *     original's.
         */
        post: operations["sandboxes.fork"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/sandboxes/{id}/pause": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Pause a sandbox with its processes.
         * @description The next use resumes it.
         */
        post: operations["sandboxes.pause"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/sandboxes/{id}/resume": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Resume a paused or suspended sandbox. */
        post: operations["sandboxes.resume"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/sandboxes/{id}/snapshot": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Create a named snapshot of the files of a sandbox. */
        post: operations["sandboxes.snapshot"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/sandboxes/{id}/suspend": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Suspend a sandbox.
         * @description Ends its processes and keeps its files and the state of its shells. The next use starts it from them.
         */
        post: operations["sandboxes.suspend"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/search": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Search the commands and the output of all threads.
         * @description Commands are searched newest first. A page ends after `limit` commands that match, after 128 MiB of output or after
         *     2 seconds, whichever comes first; continue with its `next_cursor`. Of the output of a command, what is still kept is
         *     searched; of a typed command, the last 1 MiB that its terminal printed.
         */
        get: operations["commands.search"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/sessions": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List the sessions of all threads, newest first.
         * @description Includes ended sessions. With `status` a page may hold fewer items than `limit`; the list ends where
         *     `next_cursor` is null.
         */
        get: operations["sessions.list"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/shares": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List all share links, newest first.
         * @description Includes expired and revoked links.
         */
        get: operations["shares.list"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/shares/open": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Exchange the secret of a share link for a cookie.
         * @description The cookie gives read-only access to the terminal of the link.
         */
        post: operations["shares.open"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/shares/{share_id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        /**
         * Revoke a share link.
         * @description Current viewers are disconnected.
         */
        delete: operations["shares.revoke"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/snapshots": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List all snapshots. */
        get: operations["snapshots.list"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/snapshots/{name}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        /**
         * Delete a snapshot.
         * @description Instances that were created from it keep their files.
         */
        delete: operations["snapshots.delete"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/terminals": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List the terminals of all threads, oldest first.
         * @description With `status` a page may hold fewer items than `limit`; the list ends where `next_cursor` is null.
         */
        get: operations["terminals.list"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/terminals/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Get a terminal. */
        get: operations["terminals.get"];
        put?: never;
        post?: never;
        /** Delete a terminal and end all its processes. */
        delete: operations["terminals.delete"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/terminals/{id}/commands": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List the commands of a terminal, newest first. */
        get: operations["terminals.list_commands"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/terminals/{id}/env": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        /** Set and remove exported variables in the live shell. */
        patch: operations["terminals.update_env"];
        trace?: never;
    };
    "/api/terminals/{id}/exec": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Run a command in a terminal. */
        post: operations["terminals.exec"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/terminals/{id}/fork": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Create a terminal in the same thread from the state of this one. */
        post: operations["terminals.fork"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/terminals/{id}/handoffs": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Ask a person for input, a secret or an approval.
         * @description The hand-off stays open until a person answers or declines it, or until it expires. It survives restarts of the
         *     server. With `wait_ms` the response is delayed until the hand-off is settled, or until that time has passed.
         */
        post: operations["handoffs.create"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/terminals/{id}/input": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Type into a terminal. */
        post: operations["terminals.input"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/terminals/{id}/recording": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Download the recording of a terminal in asciicast v2 format.
         * @description Contains all output that is still kept.
         */
        get: operations["terminals.recording"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/terminals/{id}/resize": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Resize a terminal. */
        post: operations["terminals.resize"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/terminals/{id}/rollback": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Restore an earlier version of the state of a terminal.
         * @description The restored state becomes a new version.
         */
        post: operations["terminals.rollback"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/terminals/{id}/share": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Get the share link that this request is authenticated with. */
        get: operations["shares.current"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/terminals/{id}/shares": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List the share links of a terminal, newest first.
         * @description Includes expired and revoked links.
         */
        get: operations["terminals.list_shares"];
        put?: never;
        /** Create a read-only link to a terminal. */
        post: operations["shares.create"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/terminals/{id}/signal": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Send a signal to the foreground program of a terminal. */
        post: operations["terminals.signal"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/terminals/{id}/snapshot": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Get the screen of a terminal. */
        get: operations["terminals.snapshot"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/terminals/{id}/stream": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Stream the output of a terminal.
         * @description Sends `snapshot` first, then `data`, `resize`, `title`, `notice`, `gap`, `driver` and `exit`. The id of an
         *     event is the offset after it.
         */
        get: operations["terminals.stream"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/terminals/{id}/versions": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List the versions of the state of a terminal, newest first. */
        get: operations["terminals.list_versions"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/terminals/{id}/versions/{v}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get one version of the state of a terminal.
         * @description With `since`, only the differences from that version.
         */
        get: operations["terminals.get_version"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/terminals/{id}/ws": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Connect to a terminal by WebSocket.
         * @description Binary frames carry output and input, text frames carry control messages as JSON.
         */
        get: operations["terminals.connect"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/threads": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List all threads in the order of their creation. */
        get: operations["threads.list"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/threads/{tid}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Get a thread. */
        get: operations["threads.get"];
        /** Create a thread with options, or change one. */
        put: operations["threads.put"];
        post?: never;
        /**
         * Delete a thread with its session and terminals.
         * @description The lease of the thread is destroyed unless another thread shares it.
         */
        delete: operations["threads.delete"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/threads/{tid}/exec": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Run a command in a thread's default terminal.
         * @description Creates the thread if it does not exist.
         */
        post: operations["threads.exec"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/threads/{tid}/fs/list": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List a directory.
         * @description Each directory is followed by its own entries.
         */
        get: operations["files.list"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/threads/{tid}/fs/mkdir": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Create a directory. */
        post: operations["files.mkdir"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/threads/{tid}/fs/move": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Move or rename a file or directory. */
        post: operations["files.move"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/threads/{tid}/fs/read": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Read a file, whole or in part.
         * @description Returns raw bytes, or JSON with `format=json`. The `Range` header is supported.
         */
        get: operations["files.read"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/threads/{tid}/fs/remove": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        /**
         * Delete a file or directory.
         * @description Symbolic links are deleted, not followed.
         */
        delete: operations["files.delete"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/threads/{tid}/fs/search": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Search the content of files with a regular expression.
         * @description Matching is linear in the size of the files; matches, bytes and time are limited.
         */
        get: operations["files.search"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/threads/{tid}/fs/stat": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get the metadata of a file or directory.
         * @description Symbolic links are not followed.
         */
        get: operations["files.stat"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/threads/{tid}/fs/watch": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Stream changes of files.
         * @description Sends `ready` first, then `created`, `modified` and `removed` with `{path}`. `lost` means that events were
         *     dropped, `partial` that there are too many directories to watch all; `gone` ends the stream.
         */
        get: operations["files.watch"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/threads/{tid}/fs/write": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        /**
         * Write a whole file atomically.
         * @description With `If-None-Match: *` the file must not exist; with `If-Match` it must not have changed.
         */
        put: operations["files.write"];
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/threads/{tid}/lease": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Get the lease of a thread. */
        get: operations["threads.get_lease"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/threads/{tid}/messages": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List the messages of a thread, oldest first. */
        get: operations["messages.list"];
        put?: never;
        /**
         * Add a message to a thread.
         * @description Creates the thread if it does not exist.
         */
        post: operations["messages.create"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/threads/{tid}/pause": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Pause the instance of a thread. */
        post: operations["threads.pause"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/threads/{tid}/ports": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List the TCP ports that programs of a thread listen on.
         * @description Without a sandbox (provider `local`) these are the ports of the machine.
         */
        get: operations["threads.list_ports"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/threads/{tid}/ports/{port}/links": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Create a link that opens a port of a thread without a token.
         * @description The host of the link opens this port of this thread until the link expires or the thread is deleted, and nothing
         *     else. A request through a link resumes a paused thread. The server needs a domain name: `localhost` on a loopback
         *     address, otherwise the first of the setting `names`.
         */
        post: operations["threads.link_port"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/threads/{tid}/resume": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Resume the instance of a thread. */
        post: operations["threads.resume"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/threads/{tid}/session": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get the session of a thread.
         * @description Returns the open session or, if there is none, the last one.
         */
        get: operations["sessions.get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/threads/{tid}/session/close": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Close the session of a thread.
         * @description The next use of the thread opens a new session.
         */
        post: operations["sessions.close"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/threads/{tid}/session/touch": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Keep the session of a thread alive.
         * @description Resets its idle timeout; opens a session if none is open.
         */
        post: operations["sessions.touch"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/threads/{tid}/terminal": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Get the state of the default terminal of a thread. */
        get: operations["threads.get_terminal"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/threads/{tid}/terminals": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List the terminals of a thread, oldest first. */
        get: operations["threads.list_terminals"];
        put?: never;
        /**
         * Create a terminal in a thread.
         * @description Creates the thread if it does not exist.
         */
        post: operations["threads.create_terminal"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/docs/api": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Get the API reference as a web page. */
        get: operations["docs.page"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/docs/api/page.css": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Get the style sheet of the API reference. */
        get: operations["docs.style"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/docs/api/page.js": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Get the script of the API reference. */
        get: operations["docs.script"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/healthz": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Check that the process is alive. */
        get: operations["server.live"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/login": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Exchange the one-time code of a sign-in link for a session cookie. */
        get: operations["server.sign_in"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/metrics": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Get metrics in the OpenMetrics text format. */
        get: operations["server.metrics"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/readyz": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Check that the server is ready.
         * @description The server is ready when the store accepts writes and the shells that kept running were found. Little free space, hosts
         *     that do not answer and a default provider that cannot be used are warnings. Callers without a token see which checks
         *     failed, but not why.
         */
        get: operations["server.ready"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
}
export type webhooks = Record<string, never>;
export interface components {
    schemas: {
        /**
         * @description An answer to a hand-off.
         * @example {
         *       "approve": true,
         *       "option": "deploy"
         *     }
         */
        AnswerRequest: {
            /** @description Decision about an approval. */
            approve?: boolean | null;
            /** @description One of the options; implies `approve` for an approval. */
            option?: string | null;
            /** @description Text for the agent, of at most 64 KiB: the answer to an input, or a note to an approval. */
            text?: string | null;
            /**
             * @description The secret, which is typed into the terminal and followed by a newline; at most 4000 bytes without control
             *     characters. The server keeps it nowhere.
             */
            secret?: string | null;
        };
        BTreeMap: {
            [key: string]: string;
        };
        /**
         * Format: binary
         * @description Bytes of a file or stream.
         */
        Binary: string;
        /** @enum {string} */
        BusyAction: "wait" | "fail";
        /** @description An action of the clean-up on one project. */
        CleanupCandidate: {
            /** @description Id of the project. */
            project_id: string;
            /** @description `warn` or `delete`. */
            action: string;
            /** @description Time of the deletion. */
            at: string;
            /**
             * Format: int32
             * @description Days until the deletion, counted from 1; 0 means now.
             */
            days_left: number;
            /** @description Reason of the action. */
            reason: string;
            /** @description Time of the last activity. */
            last_access: string;
        };
        /**
         * @description The kind of a problem, for programs. The meaning of a code never changes.
         * @enum {string}
         */
        Code: "invalid_request" | "invalid_json" | "invalid_body" | "invalid_query" | "invalid_path" | "invalid_header" | "unauthorized" | "host_not_allowed" | "origin_not_allowed" | "forbidden" | "not_found" | "no_such_route" | "method_not_allowed" | "body_timeout" | "conflict" | "busy" | "version_conflict" | "lease_paused" | "not_driver" | "not_supported" | "not_running" | "not_waiting" | "echo_on" | "outcome_unknown" | "in_flight" | "gone" | "body_too_large" | "range_not_satisfiable" | "outside_route" | "not_a_file" | "is_a_directory" | "not_a_directory" | "not_empty" | "already_exists" | "quota_exceeded" | "unsupported_media_type" | "key_reused" | "unprocessable" | "too_many_terminals" | "too_many_requests" | "too_many_failures" | "overloaded" | "stopping" | "store_unavailable" | "store_damaged" | "provider_unavailable" | "unreachable" | "out_of_terminals" | "out_of_descriptors" | "out_of_processes" | "out_of_memory" | "out_of_watches" | "disk_full" | "port_closed" | "port_timeout" | "internal";
        /** @description The receipt of a command. */
        CommandReceipt: {
            /** @description Id of the command. */
            command_id: string;
            /** @description `finished`, `running`, `timed_out`, `cancelled`, `lost` or `not_started`. */
            status: string;
            /**
             * Format: int32
             * @description Exit code; null unless the command exited.
             */
            exit_code?: number | null;
            /** @description Name of the signal that ended the command. */
            signal?: string | null;
            /** @description Whether the command exceeded `timeout_ms`. */
            timed_out: boolean;
            /** @description Standard output, if it is UTF-8. */
            stdout?: string | null;
            /** @description Standard output as base64, if it is not UTF-8. */
            stdout_base64?: string | null;
            /** @description Standard error, if it is UTF-8. */
            stderr?: string | null;
            /** @description Standard error as base64, if it is not UTF-8. */
            stderr_base64?: string | null;
            /**
             * Format: int64
             * @description Bytes written to standard output.
             */
            stdout_bytes: number;
            /**
             * Format: int64
             * @description Bytes written to standard error.
             */
            stderr_bytes: number;
            /** @description Whether the output is truncated; `/output` has all of it. */
            truncated: boolean;
            /**
             * Format: int64
             * @description Duration in milliseconds.
             */
            duration_ms: number;
            /**
             * @description The limit of the instance that a failed command ran into: `out_of_memory`, `processes` or
             *     `disk_full`.
             */
            limit_reached?: string | null;
            /** @description Whether the shell had to be restarted; its state was restored. */
            shell_restarted: boolean;
            /** @description Whether the command waits for input on the terminal. */
            waiting_for_input: boolean;
            /** @description Id of the terminal. */
            terminal_id: string;
            /**
             * Format: int64
             * @description Version of the terminal's state after the command.
             */
            version: number;
            /** @description Working directory of the shell after the command. */
            cwd: string;
            /** @description Changes to the state of the shell. */
            changes: components["schemas"]["StateChanges"];
        };
        /** @description The current or latest command of a terminal. */
        CommandSummary: {
            /** @description Id of the command. */
            command_id: string;
            /** @description Id of its terminal. */
            terminal_id: string;
            /** @description Text of the command; long texts are truncated. */
            command: string;
            /** @description `queued`, `running`, `finished`, `timed_out`, `cancelled`, `lost` or `not_started`. */
            status: string;
            /**
             * Format: int32
             * @description Exit code; null unless the command exited.
             */
            exit_code?: number | null;
            /** @description Whether the command is queued or running. */
            running: boolean;
            /** @description Start time; null for a command that has not started. */
            started_at?: string | null;
            /** @description End time; null for a command that has not ended. */
            finished_at?: string | null;
            /** @description Whether the command waits for input on the terminal. */
            waiting_for_input: boolean;
        };
        /** @description A command in the history of a terminal. */
        CommandView: {
            /** @description Id of the command. */
            command_id: string;
            /** @description The command text. */
            command: string;
            /** @description `agent` for exec, `person` for typed commands. */
            source: string;
            /** @description `queued`, `running`, `finished`, `timed_out`, `cancelled`, `lost` or `not_started`. */
            status: string;
            /**
             * Format: int32
             * @description Exit code; null unless the command exited.
             */
            exit_code?: number | null;
            /** @description Name of the signal that ended the command. */
            signal?: string | null;
            /** @description Time of the request. */
            created_at: string;
            /** @description Time of the end; null while the command runs. */
            finished_at?: string | null;
            /**
             * Format: int64
             * @description Duration in milliseconds.
             */
            duration_ms?: number | null;
            /**
             * Format: int64
             * @description Bytes written to standard output.
             */
            stdout_bytes: number;
            /**
             * Format: int64
             * @description Bytes written to standard error.
             */
            stderr_bytes: number;
            /**
             * Format: int64
             * @description Version of the terminal's state before the command.
             */
            version_before: number;
            /**
             * Format: int64
             * @description Version of the terminal's state after the command.
             */
            version?: number | null;
            /**
             * Format: int64
             * @description Offset in the terminal's output where the command's output starts.
             */
            offset_start?: number | null;
            /**
             * Format: int64
             * @description Offset in the terminal's output where the command's output ends.
             */
            offset_end?: number | null;
            /** @description Working directory of the shell after the command. */
            cwd?: string | null;
            /** @description Changes to the state of the shell. */
            changes: components["schemas"]["StateChanges"];
            /** @description Whether the shell had to be restarted. */
            shell_restarted: boolean;
            /**
             * @description The limit of the instance that a failed command ran into: `out_of_memory`, `processes` or
             *     `disk_full`.
             */
            limit_reached?: string | null;
        };
        /**
         * @description A terminal to create.
         * @example {
         *       "cols": 120,
         *       "cwd": "/workspace",
         *       "rows": 40
         *     }
         */
        CreateTerminal: {
            /** @description Program and arguments; the shell by default. */
            cmd?: string[] | null;
            /**
             * Format: int32
             * @description Number of columns; 80 by default.
             */
            cols?: number | null;
            /**
             * Format: int32
             * @description Number of rows; 24 by default.
             */
            rows?: number | null;
            /** @description Initial working directory; the thread's directory by default. */
            cwd?: string | null;
            env?: components["schemas"]["BTreeMap"] | null;
            /** @description `bash` (default), `zsh` or `sh`. */
            shell?: string | null;
        };
        /** @description The cursor of a terminal. */
        CursorView: {
            /**
             * Format: int32
             * @description Column, from 0.
             */
            x: number;
            /**
             * Format: int32
             * @description Row of the screen, from 0.
             */
            y: number;
            /** @description Whether the cursor is visible. */
            visible: boolean;
        };
        /** @description A change of the working directory. */
        CwdChange: {
            /** @description The directory before. */
            from: string;
            /** @description The directory afterwards. */
            to: string;
        };
        /**
         * @description A refusal to answer.
         * @example {
         *       "text": "Not during business hours."
         *     }
         */
        DeclineRequest: {
            /**
             * @description Text for the agent, of at most 64 KiB.
             * @default null
             */
            text: string | null;
        };
        /** @description The default terminal of a thread. */
        DefaultTerminal: {
            /** @description Id of the thread. */
            thread_id: string;
            /** @description Id of the terminal. */
            terminal_id: string;
            /** @description Id of its lease. */
            lease_id: string;
            /** @description Working directory of the shell. */
            cwd: string;
            /** @description Changes of the environment since the start; null for a removed variable. */
            env_delta: {
                [key: string]: string | null;
            };
            /**
             * Format: int64
             * @description Version of its state.
             */
            version: number;
            /** @description Creation time. */
            created_at: string;
            /** @description Time of the last change. */
            updated_at: string;
        };
        /**
         * @description A destination that programs of a sandbox tried to reach.
         * @example {
         *       "address": "203.0.113.7",
         *       "attempts": 3,
         *       "last_seen_at": "2026-01-05T10:15:00Z",
         *       "name": "example.com",
         *       "port": 443,
         *       "protocol": "tcp",
         *       "verdict": "allowed"
         *     }
         */
        EgressEntry: {
            /** @description IPv4 address. */
            address: string;
            /**
             * Format: int32
             * @description Port; null if the protocol has none.
             */
            port?: number | null;
            /** @description `tcp`, `udp`, `icmp`, or the name or number of another protocol. */
            protocol: string;
            /** @description Name for which the egress rules allow the address; null for other addresses. */
            name?: string | null;
            /** @description `allowed` or `refused`. */
            verdict: string;
            /**
             * Format: int64
             * @description Number of connections, including repeated first packets; for refused destinations, the number of packets.
             */
            attempts: number;
            /** @description Time of the last attempt, to the second. */
            last_seen_at: string;
        };
        /** @description The destinations that programs of a sandbox tried to reach. */
        EgressLogView: {
            /** @description The destinations, the most recently used first. */
            items: components["schemas"]["EgressEntry"][];
            /**
             * Format: int64
             * @description Attempts to reach further allowed destinations, for which the log had no room.
             */
            unlisted_allowed: number;
            /**
             * Format: int64
             * @description Attempts to reach further refused destinations, for which the log had no room.
             */
            unlisted_refused: number;
        };
        /** @description Allowed outgoing connections of a sandbox. */
        EgressPolicy: string | string[] | components["schemas"]["EgressRules"];
        /** @description Rules for outgoing connections, beneath the default of the server. */
        EgressRules: {
            /** @description Addresses, networks and names; takes precedence over `deny`. */
            allow?: string[];
            /** @description Addresses and networks. */
            deny?: string[];
        };
        /** @description A change of the exported environment. */
        EnvChange: {
            /** @description Variables with a new value. */
            set: {
                [key: string]: string;
            };
            /** @description Names of removed variables. */
            unset: string[];
        };
        /**
         * @description Changes to the exported environment.
         * @example {
         *       "set": {
         *         "RUST_LOG": "debug"
         *       },
         *       "unset": [
         *         "DEBUG"
         *       ]
         *     }
         */
        EnvPatch: {
            /** @description Variables to set. */
            set?: components["schemas"]["BTreeMap"];
            /** @description Names of the variables to remove. */
            unset?: string[];
        };
        /** @description How often an instance reached its limits since it was created. */
        ExceededLimits: {
            /**
             * Format: int64
             * @description Processes that were killed at the memory limit.
             */
            out_of_memory: number;
            /**
             * Format: int64
             * @description Processes that could not be created at the process limit.
             */
            processes: number;
            /**
             * Format: int64
             * @description How often processes were killed for exceeding the disk quota.
             */
            disk: number;
        };
        /**
         * @description A command to run.
         * @example {
         *       "command": "make test",
         *       "timeout_ms": 120000
         *     }
         */
        ExecRequest: {
            /** @description Shell command; may have several lines. */
            command: string;
            /**
             * Format: int64
             * @description Ends the command and all its processes after this time, in milliseconds.
             */
            timeout_ms?: number | null;
            /**
             * Format: int64
             * @description Responds with status `running` after this time, in milliseconds. The command continues, and its
             *     standard input stays open.
             */
            yield_ms?: number | null;
            /** @description Standard input; empty by default. */
            stdin?: string | null;
            env?: components["schemas"]["BTreeMap"] | null;
            /** @description Working directory for this command only. */
            cwd?: string | null;
            /**
             * Format: int64
             * @description Maximum number of bytes of each stream in the response; 1 MiB by default.
             */
            max_output_bytes?: number | null;
            if_busy?: components["schemas"]["BusyAction"] | null;
            /** @description Whether to resume a paused instance; true by default. Otherwise the response is 409 `lease_paused`. */
            resume?: boolean | null;
        };
        /**
         * @description The time to keep a project.
         * @example {
         *       "days": 30
         *     }
         */
        ExtendProject: {
            /**
             * Format: int32
             * @description Number of days, 1 to 3650.
             */
            days: number;
        };
        /**
         * @description A longer lifetime.
         * @example {
         *       "timeout_s": 3600
         *     }
         */
        ExtendRequest: {
            /**
             * Format: int64
             * @description The sandbox lives at least this many seconds from now.
             */
            timeout_s: number;
        };
        /** @description An error in one field of the input. */
        FieldError: {
            /** @description JSON pointer into the body; for a parameter, its name after a slash. */
            pointer: string;
            /** @description What is wrong with the value. */
            detail: string;
        };
        /** @description The metadata of a file. */
        FileStat: {
            /** @description Path of the file. */
            path: string;
            /** @description Last segment of the path. */
            name: string;
            /** @description `file`, `directory`, `link` or `other`. */
            type: string;
            /**
             * Format: int64
             * @description Size in bytes.
             */
            size: number;
            /** @description Time of the last write; null if unknown. */
            modified_at?: string | null;
            /** @description Permission bits in octal; null if there are none. */
            mode?: string | null;
            /** @description Target of a symbolic link. */
            target?: string | null;
            /** @description Entity tag for `If-Match`; changes with each write. */
            etag?: string | null;
        };
        /** @description The content of a file as JSON. */
        FileText: {
            /** @description Path of the file. */
            path: string;
            /** @description Content, if it is UTF-8. */
            content?: string | null;
            /** @description Content as base64, if it is not UTF-8. */
            content_base64?: string | null;
            /**
             * Format: int64
             * @description Offset of the first byte.
             */
            offset: number;
            /**
             * Format: int64
             * @description Offset after the last byte.
             */
            next_offset: number;
            /** @description Whether the content reaches the end of the file. */
            end: boolean;
            /**
             * Format: int64
             * @description Size of the whole file in bytes.
             */
            size: number;
            /** @description Entity tag for `If-Match`. */
            etag?: string | null;
        };
        /**
         * @description Options of a fork.
         * @example {
         *       "version": 3
         *     }
         */
        ForkRequest: {
            /**
             * Format: int64
             * @description Number of the version; the current one by default.
             */
            version?: number | null;
        };
        /** @description The answer of a person, without a secret. */
        HandoffAnswerView: {
            /** @description Decision about an approval. */
            approve?: boolean | null;
            /** @description The chosen option. */
            option?: string | null;
            /** @description Text of the person. */
            text?: string | null;
        };
        /** @description A request of an agent to a person. */
        HandoffView: {
            /** @description Id of the hand-off. */
            handoff_id: string;
            /** @description Id of the thread. */
            thread_id: string;
            /** @description Id of the terminal. */
            terminal_id: string;
            /** @description `input`, `secret` or `approval`. */
            kind: string;
            /** @description What the person is asked, and why. */
            reason: string;
            /** @description Answers to choose from. */
            options: string[];
            /** @description `open`, `answered`, `declined` or `expired`. */
            status: string;
            answer?: components["schemas"]["HandoffAnswerView"] | null;
            /** @description Creation time. */
            created_at: string;
            /** @description Time at which an open hand-off expires. */
            expires_at: string;
            /** @description Time at which the hand-off was answered, was declined or expired; null while it is open. */
            settled_at?: string | null;
        };
        /**
         * @description The state of a build.
         * @enum {string}
         */
        ImageBuildStatus: "running" | "succeeded" | "failed";
        /** @description A build of an image. */
        ImageBuildView: {
            /** @description Id of the build. */
            build_id: string;
            /** @description Full reference of the image. */
            image: string;
            status: components["schemas"]["ImageBuildStatus"];
            /** @description Why the build failed, with the line of the Dockerfile; null if it did not. */
            error?: string | null;
            /** @description Creation time. */
            created_at: string;
            /** @description Time of the last change. */
            updated_at: string;
        };
        /** @description The result of an import. */
        ImportedProject: {
            /** @description The imported project. */
            project: components["schemas"]["ProjectView"];
            /** @description Ids of its threads. */
            threads: string[];
            /**
             * Format: int64
             * @description Number of imported files, directories and links.
             */
            entries: number;
            /**
             * Format: int64
             * @description Total size in bytes.
             */
            bytes: number;
            /** @description What the export could not include. */
            left_out: string[];
        };
        /** @description Resource limits of an instance. */
        InstanceLimits: {
            /**
             * Format: int64
             * @description Memory in bytes.
             */
            memory_bytes: number;
            /**
             * Format: int64
             * @description Thousandths of a CPU.
             */
            milli_cpus: number;
            /**
             * Format: int64
             * @description Number of processes and threads.
             */
            processes: number;
            /**
             * Format: int64
             * @description Disk space in bytes; absent if it is not limited.
             */
            disk_bytes?: number;
        };
        /** @description Resource usage of an instance. */
        InstanceMetrics: {
            /**
             * Format: int64
             * @description CPU time since the instance was created, in microseconds.
             */
            cpu_us: number;
            /**
             * Format: int64
             * @description Memory in bytes, with shared pages counted proportionally.
             */
            memory_bytes: number;
            /**
             * Format: int64
             * @description Number of processes.
             */
            processes: number;
            /**
             * Format: int64
             * @description Used disk space in bytes.
             */
            disk_bytes: number;
            /** @description Limits of the instance; absent if it has none. */
            limits?: components["schemas"]["InstanceLimits"];
            /** @description How often limits were reached; absent if there are none. */
            exceeded?: components["schemas"]["ExceededLimits"];
        };
        /** @description The instance of a lease. */
        InstanceView: {
            /** @description Id of the instance. */
            instance_id: string;
            /** @description `running`, `paused` or `dead`. */
            state: string;
            /** @description Start time. */
            started_at: string;
            metrics?: components["schemas"]["InstanceMetrics"] | null;
        };
        /** @description A lease and its instance. */
        LeaseView: {
            /** @description Thread of the request, in responses about a thread. */
            thread_id?: string | null;
            /** @description Id of the lease. */
            lease_id: string;
            /** @description Name of the provider. */
            provider_name: string;
            instance?: components["schemas"]["InstanceView"] | null;
            /** @description Ids of the threads that use the lease. */
            shared_by: string[];
            /** @description Whether the host of the instance responds. */
            reachable: boolean;
            /** @description Time since which the host has not responded. */
            unreachable_since?: string | null;
            /**
             * Format: int64
             * @description Number of instances so far.
             */
            generation: number;
            /**
             * Format: double
             * @description Total running time of all instances, in seconds.
             */
            running_s: number;
            /**
             * Format: double
             * @description Cost of the running time at the configured price; omitted if it is zero.
             */
            cost?: number | null;
            /** @description Creation time. */
            created_at: string;
            /** @description Time of the last change. */
            updated_at: string;
        };
        /** @description An automatic action of the server. */
        LedgerView: {
            /**
             * Format: int64
             * @description Number of the entry; increases.
             */
            id: number;
            /** @description Time of the action. */
            at: string;
            /** @description The action: `orphan_ended`, `session_expired` or `project_deleted`. */
            kind: string;
            /** @description Id of the affected resource. */
            subject: string;
            /** @description The reason and other details. */
            detail: {
                [key: string]: unknown;
            };
        };
        /** @description One page of a list. */
        List_CleanupCandidate: {
            /** @description The items, in the order of the list. */
            items: {
                /** @description Id of the project. */
                project_id: string;
                /** @description `warn` or `delete`. */
                action: string;
                /** @description Time of the deletion. */
                at: string;
                /**
                 * Format: int32
                 * @description Days until the deletion, counted from 1; 0 means now.
                 */
                days_left: number;
                /** @description Reason of the action. */
                reason: string;
                /** @description Time of the last activity. */
                last_access: string;
            }[];
            /** @description The `cursor` of the next page; null on the last page. */
            next_cursor?: string | null;
        };
        /** @description One page of a list. */
        List_CommandView: {
            /** @description The items, in the order of the list. */
            items: {
                /** @description Id of the command. */
                command_id: string;
                /** @description The command text. */
                command: string;
                /** @description `agent` for exec, `person` for typed commands. */
                source: string;
                /** @description `queued`, `running`, `finished`, `timed_out`, `cancelled`, `lost` or `not_started`. */
                status: string;
                /**
                 * Format: int32
                 * @description Exit code; null unless the command exited.
                 */
                exit_code?: number | null;
                /** @description Name of the signal that ended the command. */
                signal?: string | null;
                /** @description Time of the request. */
                created_at: string;
                /** @description Time of the end; null while the command runs. */
                finished_at?: string | null;
                /**
                 * Format: int64
                 * @description Duration in milliseconds.
                 */
                duration_ms?: number | null;
                /**
                 * Format: int64
                 * @description Bytes written to standard output.
                 */
                stdout_bytes: number;
                /**
                 * Format: int64
                 * @description Bytes written to standard error.
                 */
                stderr_bytes: number;
                /**
                 * Format: int64
                 * @description Version of the terminal's state before the command.
                 */
                version_before: number;
                /**
                 * Format: int64
                 * @description Version of the terminal's state after the command.
                 */
                version?: number | null;
                /**
                 * Format: int64
                 * @description Offset in the terminal's output where the command's output starts.
                 */
                offset_start?: number | null;
                /**
                 * Format: int64
                 * @description Offset in the terminal's output where the command's output ends.
                 */
                offset_end?: number | null;
                /** @description Working directory of the shell after the command. */
                cwd?: string | null;
                /** @description Changes to the state of the shell. */
                changes: components["schemas"]["StateChanges"];
                /** @description Whether the shell had to be restarted. */
                shell_restarted: boolean;
                /**
                 * @description The limit of the instance that a failed command ran into: `out_of_memory`, `processes` or
                 *     `disk_full`.
                 */
                limit_reached?: string | null;
            }[];
            /** @description The `cursor` of the next page; null on the last page. */
            next_cursor?: string | null;
        };
        /** @description One page of a list. */
        List_FileStat: {
            /** @description The items, in the order of the list. */
            items: {
                /** @description Path of the file. */
                path: string;
                /** @description Last segment of the path. */
                name: string;
                /** @description `file`, `directory`, `link` or `other`. */
                type: string;
                /**
                 * Format: int64
                 * @description Size in bytes.
                 */
                size: number;
                /** @description Time of the last write; null if unknown. */
                modified_at?: string | null;
                /** @description Permission bits in octal; null if there are none. */
                mode?: string | null;
                /** @description Target of a symbolic link. */
                target?: string | null;
                /** @description Entity tag for `If-Match`; changes with each write. */
                etag?: string | null;
            }[];
            /** @description The `cursor` of the next page; null on the last page. */
            next_cursor?: string | null;
        };
        /** @description One page of a list. */
        List_HandoffView: {
            /** @description The items, in the order of the list. */
            items: {
                /** @description Id of the hand-off. */
                handoff_id: string;
                /** @description Id of the thread. */
                thread_id: string;
                /** @description Id of the terminal. */
                terminal_id: string;
                /** @description `input`, `secret` or `approval`. */
                kind: string;
                /** @description What the person is asked, and why. */
                reason: string;
                /** @description Answers to choose from. */
                options: string[];
                /** @description `open`, `answered`, `declined` or `expired`. */
                status: string;
                answer?: components["schemas"]["HandoffAnswerView"] | null;
                /** @description Creation time. */
                created_at: string;
                /** @description Time at which an open hand-off expires. */
                expires_at: string;
                /** @description Time at which the hand-off was answered, was declined or expired; null while it is open. */
                settled_at?: string | null;
            }[];
            /** @description The `cursor` of the next page; null on the last page. */
            next_cursor?: string | null;
        };
        /** @description One page of a list. */
        List_ImageBuildView: {
            /** @description The items, in the order of the list. */
            items: {
                /** @description Id of the build. */
                build_id: string;
                /** @description Full reference of the image. */
                image: string;
                status: components["schemas"]["ImageBuildStatus"];
                /** @description Why the build failed, with the line of the Dockerfile; null if it did not. */
                error?: string | null;
                /** @description Creation time. */
                created_at: string;
                /** @description Time of the last change. */
                updated_at: string;
            }[];
            /** @description The `cursor` of the next page; null on the last page. */
            next_cursor?: string | null;
        };
        /** @description One page of a list. */
        List_LeaseView: {
            /** @description The items, in the order of the list. */
            items: {
                /** @description Thread of the request, in responses about a thread. */
                thread_id?: string | null;
                /** @description Id of the lease. */
                lease_id: string;
                /** @description Name of the provider. */
                provider_name: string;
                instance?: components["schemas"]["InstanceView"] | null;
                /** @description Ids of the threads that use the lease. */
                shared_by: string[];
                /** @description Whether the host of the instance responds. */
                reachable: boolean;
                /** @description Time since which the host has not responded. */
                unreachable_since?: string | null;
                /**
                 * Format: int64
                 * @description Number of instances so far.
                 */
                generation: number;
                /**
                 * Format: double
                 * @description Total running time of all instances, in seconds.
                 */
                running_s: number;
                /**
                 * Format: double
                 * @description Cost of the running time at the configured price; omitted if it is zero.
                 */
                cost?: number | null;
                /** @description Creation time. */
                created_at: string;
                /** @description Time of the last change. */
                updated_at: string;
            }[];
            /** @description The `cursor` of the next page; null on the last page. */
            next_cursor?: string | null;
        };
        /** @description One page of a list. */
        List_LedgerView: {
            /** @description The items, in the order of the list. */
            items: {
                /**
                 * Format: int64
                 * @description Number of the entry; increases.
                 */
                id: number;
                /** @description Time of the action. */
                at: string;
                /** @description The action: `orphan_ended`, `session_expired` or `project_deleted`. */
                kind: string;
                /** @description Id of the affected resource. */
                subject: string;
                /** @description The reason and other details. */
                detail: {
                    [key: string]: unknown;
                };
            }[];
            /** @description The `cursor` of the next page; null on the last page. */
            next_cursor?: string | null;
        };
        /** @description One page of a list. */
        List_ListeningPort: {
            /** @description The items, in the order of the list. */
            items: {
                /**
                 * Format: int32
                 * @description Number of the TCP port.
                 */
                port: number;
            }[];
            /** @description The `cursor` of the next page; null on the last page. */
            next_cursor?: string | null;
        };
        /** @description One page of a list. */
        List_MessageView: {
            /** @description The items, in the order of the list. */
            items: {
                /** @description Id of the message. */
                message_id: string;
                /** @description `system`, `user`, `assistant` or `tool`. */
                role: string;
                /** @description Text of the message. */
                content: string;
                /** @description Time of the message. */
                at: string;
            }[];
            /** @description The `cursor` of the next page; null on the last page. */
            next_cursor?: string | null;
        };
        /** @description One page of a list. */
        List_ProjectView: {
            /** @description The items, in the order of the list. */
            items: {
                /** @description Id of the project. */
                project_id: string;
                /** @description The chosen prefix of the id. */
                prefix: string;
                /** @description Description of the project. */
                description: string;
                /** @description Tags set by clients. */
                tags: string[];
                /** @description Settings of this project that differ from the defaults. */
                config: components["schemas"]["ProjectConfig"];
                /**
                 * @description The backend of each route of the project's file tree: `filesystem` (disk), `state` (memory) or `store`
                 *     (database). Routes of `config` take precedence over the setting `project.routes` of the server.
                 */
                routes: {
                    [key: string]: string;
                };
                /** @description Whether the project is exempt from automatic deletion. */
                pinned: boolean;
                /** @description Time of its automatic deletion without further activity; null means never. */
                deletes_at?: string | null;
                /** @description Time of the first warning about its deletion. */
                warned_at?: string | null;
                /** @description Activity in the project. */
                statistics: components["schemas"]["ProjectCounts"];
                /** @description Creation time. */
                created_at: string;
                /** @description Time of the last change. */
                updated_at: string;
            }[];
            /** @description The `cursor` of the next page; null on the last page. */
            next_cursor?: string | null;
        };
        /** @description One page of a list. */
        List_ProviderView: {
            /** @description The items, in the order of the list. */
            items: {
                /** @description Name of the provider. */
                name: string;
                /** @description Whether this is the default provider. */
                default: boolean;
                /** @description Whether the provider can be used on this machine. */
                available: boolean;
                /** @description Capabilities of the provider. */
                capabilities?: components["schemas"]["ProviderCapabilities"];
                /** @description What a suspended instance keeps: `filesystem`, `memory` or `none`. */
                suspend?: string | null;
                /** @description Number of instances in the warm pool, if there is one. */
                ready?: number | null;
                /** @description What this machine lacks to use it. */
                missing: string[];
            }[];
            /** @description The `cursor` of the next page; null on the last page. */
            next_cursor?: string | null;
        };
        /** @description One page of a list. */
        List_SandboxView: {
            /** @description The items, in the order of the list. */
            items: {
                /** @description Id of the sandbox, which is also the id of its thread. */
                sandbox_id: string;
                /** @description Name of the sandbox. */
                name?: string | null;
                /** @description Id of its project. */
                project_id: string;
                /** @description Id of its thread. */
                thread_id: string;
                /** @description Id of the default terminal of its thread. */
                terminal_id: string;
                /** @description Id of its lease. */
                lease_id: string;
                /** @description Name of its provider. */
                provider: string;
                /** @description `running` (or starts on its next use), `paused`, `suspended`, `stopped` or `archived`. */
                state: string;
                /** @description The image, snapshot or template it started from; empty for the default. */
                template: string;
                /** @description The API it was created through: `stead` for this one, otherwise the name of the other API. */
                origin: string;
                /** @description Labels set by clients. */
                labels: {
                    [key: string]: string;
                };
                /**
                 * Format: int64
                 * @description Lifetime in seconds; null if it is unlimited.
                 */
                timeout_s?: number | null;
                /** @description What happens at the end of the lifetime: `suspend`, `pause` or `destroy`. */
                on_timeout: string;
                /** @description End of the lifetime; null if it is unlimited. */
                expires_at?: string | null;
                /** @description Time of the last use. */
                last_active_at?: string | null;
                /** @description Creation time. */
                created_at: string;
                /** @description Time of the last change. */
                updated_at: string;
            }[];
            /** @description The `cursor` of the next page; null on the last page. */
            next_cursor?: string | null;
        };
        /** @description One page of a list. */
        List_SessionRecordView: {
            /** @description The items, in the order of the list. */
            items: {
                /** @description Id of the session. */
                session_id: string;
                /** @description Id of its thread. */
                thread_id: string;
                /** @description `active`, `idle`, `expired` or `closed`. */
                status: string;
                /** @description Creation time. */
                created_at: string;
                /** @description Time of the last activity. */
                last_active_at: string;
                /** @description Time of its end; null while it is open. */
                ended_at?: string | null;
            }[];
            /** @description The `cursor` of the next page; null on the last page. */
            next_cursor?: string | null;
        };
        /** @description One page of a list. */
        List_SessionView: {
            /** @description The items, in the order of the list. */
            items: {
                /** @description Id of the thread. */
                thread_id: string;
                /** @description Id of the session. */
                session_id: string;
                /** @description Id of the thread's default terminal. */
                terminal_id: string;
                /** @description `active`, `idle`, `expired` or `closed`. */
                status: string;
                /** @description The limit that expired the session: `idle_timeout`, `max_duration`, `max_running` or `max_cost`. */
                ended?: string | null;
                /** @description Creation time. */
                created_at: string;
                /** @description Time of the last activity. */
                last_active_at: string;
                /** @description Time at which the session expires without further activity, or at which it ended. */
                expires_at: string;
                /** @description Limits of the session. */
                policy: components["schemas"]["SessionPolicy"];
            }[];
            /** @description The `cursor` of the next page; null on the last page. */
            next_cursor?: string | null;
        };
        /** @description One page of a list. */
        List_ShareView: {
            /** @description The items, in the order of the list. */
            items: {
                /** @description Id of the link. */
                share_id: string;
                /** @description Id of the terminal. */
                terminal_id: string;
                /** @description Name of the link. */
                name: string;
                /** @description `active`, `expired` or `revoked`. */
                status: string;
                /** @description Creation time. */
                created_at: string;
                /** @description Time of its expiry. */
                expires_at: string;
                /** @description Time of its revocation. */
                revoked_at?: string | null;
                /** @description URL of the link. Only present in the response that created it. */
                url?: string | null;
            }[];
            /** @description The `cursor` of the next page; null on the last page. */
            next_cursor?: string | null;
        };
        /** @description One page of a list. */
        List_SnapshotView: {
            /** @description The items, in the order of the list. */
            items: {
                /** @description Name of the snapshot. */
                name: string;
                /** @description Name of its provider. */
                provider: string;
                /**
                 * Format: int64
                 * @description Size on disk in bytes.
                 */
                bytes: number;
                /** @description Creation time. */
                created_at: string;
            }[];
            /** @description The `cursor` of the next page; null on the last page. */
            next_cursor?: string | null;
        };
        /** @description One page of a list. */
        List_TerminalView: {
            /** @description The items, in the order of the list. */
            items: {
                /** @description Id of the terminal. */
                terminal_id: string;
                /** @description The same id, for clients of the older protocol. */
                ptyID: string;
                /** @description Id of its thread. */
                thread_id: string;
                /** @description Id of its lease. */
                lease_id: string;
                /** @description Whether this is the default terminal of the thread. */
                is_default: boolean;
                /** @description `live`, `exited` or `restorable`; the next use of a restorable terminal starts a shell from its state. */
                status: string;
                /** @description Program and arguments; empty for the shell. */
                cmd: string[];
                /** @description `bash`, `zsh` or `sh`. */
                shell: string;
                /**
                 * Format: int32
                 * @description Number of columns.
                 */
                cols: number;
                /**
                 * Format: int32
                 * @description Number of rows.
                 */
                rows: number;
                /** @description Window title. */
                title: string;
                /** @description Working directory of the shell. */
                cwd: string;
                /** @description Changes of the environment since the start; null for a removed variable. */
                env_delta: {
                    [key: string]: string | null;
                };
                /**
                 * Format: int64
                 * @description Version of its state.
                 */
                version: number;
                /** @description Number of attached clients. */
                clients: number;
                /** @description Name of the client that has control. */
                driver?: string | null;
                /**
                 * Format: int64
                 * @description Offset after the last byte of output.
                 */
                offset: number;
                /**
                 * Format: int32
                 * @description Exit code of its program.
                 */
                exit_code?: number | null;
                /** @description Name of the signal that ended its program. */
                signal?: string | null;
                /** @description Creation time. */
                created_at: string;
                /** @description Time of the last change. */
                updated_at: string;
                /** @description Time of the last input or output. */
                last_activity_at: string;
            }[];
            /** @description The `cursor` of the next page; null on the last page. */
            next_cursor?: string | null;
        };
        /** @description One page of a list. */
        List_ThreadRow: {
            /** @description The items, in the order of the list. */
            items: {
                /** @description Id of the thread. */
                thread_id: string;
                /** @description Id of its project. */
                project_id: string;
                /** @description Id of its default terminal. */
                terminal_id: string;
                /** @description Id of its lease. */
                lease_id: string;
                /** @description The requested provider; null for the default. */
                provider?: string | null;
                /** @description Compute of the thread. */
                sandbox: components["schemas"]["ThreadRowSandbox"];
                last_command?: components["schemas"]["CommandSummary"] | null;
                /** @description The command that each of its terminals runs or has queued; first those that wait for input. */
                current_commands: components["schemas"]["CommandSummary"][];
                /**
                 * Format: int64
                 * @description Number of open hand-offs on its terminals.
                 */
                open_handoffs: number;
                /** @description Number of clients attached to its terminals. */
                clients: number;
                /** @description Name of the client that has control of one of its terminals. */
                driver?: string | null;
                /** @description Labels set by clients. */
                labels: {
                    [key: string]: string;
                };
                /** @description Creation time. */
                created_at: string;
                /** @description Time of the last change or use. */
                updated_at: string;
            }[];
            /** @description The `cursor` of the next page; null on the last page. */
            next_cursor?: string | null;
        };
        /** @description One page of a list. */
        List_TrashedProject: {
            /** @description The items, in the order of the list. */
            items: {
                /** @description Id of the project. */
                project_id: string;
                /** @description Description of the project. */
                description: string;
                /** @description Time of the deletion. */
                deleted_at: string;
                /** @description Time until which the project can be restored. */
                restorable_until: string;
                /** @description Reason of the deletion. */
                reason: string;
            }[];
            /** @description The `cursor` of the next page; null on the last page. */
            next_cursor?: string | null;
        };
        /** @description One page of a list. */
        List_VersionView: {
            /** @description The items, in the order of the list. */
            items: {
                /**
                 * Format: int64
                 * @description Number of the version.
                 */
                version: number;
                /** @description Working directory of the shell. */
                cwd: string;
                /** @description What caused the version. */
                cause: components["schemas"]["VersionCause"];
                /** @description Creation time. */
                at: string;
                /** @description Sections of the state that differ from the previous version. */
                changed: string[];
            }[];
            /** @description The `cursor` of the next page; null on the last page. */
            next_cursor?: string | null;
        };
        /**
         * @description A port that a program listens on.
         * @example {
         *       "port": 8000
         *     }
         */
        ListeningPort: {
            /**
             * Format: int32
             * @description Number of the TCP port.
             */
            port: number;
        };
        /** @description The liveness of the server. */
        Liveness: {
            /** @description Always `ok`. */
            status: string;
            /** @description Version of the server. */
            version: string;
        };
        /** @description A matching line of output, without control sequences. */
        MatchingLine: {
            /** @description `stdout`, `stderr` or, for a typed command, `terminal`. */
            stream: string;
            /**
             * Format: int64
             * @description Offset of the line in the stream.
             */
            offset: number;
            /** @description The line; of a long one the part around the match. */
            text: string;
        };
        /** @description The result of a snapshot. */
        MemorySnapshot: {
            /** @description Whether a snapshot was written; false if the previous one was up to date. */
            written: boolean;
            /**
             * Format: int64
             * @description Number of hot memories.
             */
            entries: number;
            /**
             * Format: int64
             * @description Total size in bytes.
             */
            bytes: number;
            /** @description Kind of storage. */
            backend: string;
        };
        /** @description A message of a thread. */
        MessageView: {
            /** @description Id of the message. */
            message_id: string;
            /** @description `system`, `user`, `assistant` or `tool`. */
            role: string;
            /** @description Text of the message. */
            content: string;
            /** @description Time of the message. */
            at: string;
        };
        /**
         * @description A file or directory to move.
         * @example {
         *       "from": "/workspace/a.txt",
         *       "to": "/workspace/b.txt"
         *     }
         */
        MoveFile: {
            /** @description Current path. */
            from: string;
            /** @description New path. */
            to: string;
            /** @description Replace an existing file. */
            overwrite?: boolean;
        };
        /**
         * @description A directory to create.
         * @example {
         *       "create_dirs": true,
         *       "path": "/workspace/src"
         *     }
         */
        NewDirectory: {
            /** @description Path of the directory. */
            path: string;
            /** @description Create missing parent directories, and accept an existing directory. */
            create_dirs?: boolean;
        };
        /**
         * @description A request to a person.
         * @example {
         *       "kind": "approval",
         *       "options": [
         *         "deploy",
         *         "deploy and notify"
         *       ],
         *       "reason": "Deploy version 1.4 to production?",
         *       "timeout_ms": 3600000,
         *       "wait_ms": 60000
         *     }
         */
        NewHandoffRequest: {
            /** @description `input` (text for the agent), `secret` (typed into the program that reads the terminal) or `approval`. */
            kind: string;
            /** @description What the person is asked, and why; at most 2000 characters. */
            reason: string;
            /** @description Answers to choose from, for `input` and `approval`; at most 32 of at most 200 characters. */
            options?: string[];
            /**
             * Format: int64
             * @description Time until the hand-off expires, in milliseconds; 86400000 (a day) by default, 2592000000 (30 days)
             *     at most.
             */
            timeout_ms?: number | null;
            /**
             * Format: int64
             * @description Time to wait for the answer, in milliseconds; at most 60000.
             */
            wait_ms?: number | null;
        };
        /**
         * @description A message to add.
         * @example {
         *       "content": "Run the tests.",
         *       "role": "user"
         *     }
         */
        NewMessage: {
            /** @description `system`, `user`, `assistant` or `tool`. */
            role: string;
            /** @description Text of the message. */
            content: string;
        };
        /**
         * @description A preview link to create.
         * @example {
         *       "expires_in_ms": 3600000
         *     }
         */
        NewPortLink: {
            /**
             * Format: int64
             * @description Lifetime in milliseconds, 1000 to 2592000000 (30 days); a day by default. The expiry is rounded up to a
             *     full second.
             */
            expires_in_ms?: number | null;
        };
        /**
         * @description A project to create.
         * @example {
         *       "description": "A demonstration",
         *       "prefix": "demo",
         *       "tags": [
         *         "example"
         *       ]
         *     }
         */
        NewProject: {
            /** @description Prefix of its id: `^[a-z][a-z0-9-]{0,31}$`. */
            prefix: string;
            /** @description Description of the project. */
            description?: string | null;
            /** @description Tags set by clients. */
            tags?: string[] | null;
            config?: components["schemas"]["ProjectConfig"] | null;
        };
        /**
         * @description A session to open.
         * @example {
         *       "thread_id": "agent-1"
         *     }
         */
        NewProjectSession: {
            /** @description Id of the thread; a new thread by default. */
            thread_id?: string | null;
        };
        /**
         * @description A share link to create.
         * @example {
         *       "expires_in_s": 3600,
         *       "name": "review"
         *     }
         */
        NewShare: {
            /**
             * @description Name of the link, of at most 64 characters.
             * @default
             */
            name: string;
            /**
             * Format: int64
             * @description Lifetime in seconds, 1 to 2592000 (30 days); a day by default.
             * @default null
             */
            expires_in_s: number | null;
        };
        /**
         * @description A snapshot to create.
         * @example {
         *       "name": "with-dependencies"
         *     }
         */
        NewSnapshot: {
            /** @description Name of 1 to 64 letters, digits, `.`, `_` and `-`. An existing snapshot of this name is replaced. */
            name: string;
        };
        /**
         * @description What happens to a sandbox at the end of its lifetime.
         * @enum {string}
         */
        OnTimeout: "suspend" | "destroy";
        /**
         * @description The secret of a link.
         * @example {
         *       "secret": "Q2hhbmdlIG1lLCBJIGFtIGFuIGV4YW1wbGU"
         *     }
         */
        OpenShare: {
            /** @description The fragment of the link, after the `#`. */
            secret: string;
        };
        /** @description The limits of sessions; omitted fields keep their defaults. */
        PolicyRequest: {
            /**
             * Format: int64
             * @description Idle timeout in seconds.
             */
            idle_timeout_s?: number | null;
            /**
             * Format: int64
             * @description Maximum duration of a session in seconds.
             */
            max_duration_s?: number | null;
            /** @description What happens to the instance when a session expires: `keep`, `pause` or `stop`. */
            on_expiry?: string | null;
            /**
             * Format: double
             * @description Maximum running time of the instance during a session, in hours; 0 means no limit.
             */
            max_running_hours?: number | null;
            /**
             * Format: double
             * @description Maximum cost of the instance during a session, at the configured price; 0 means no limit.
             */
            max_cost?: number | null;
        };
        /**
         * @description A link that opens one port of a thread in a browser.
         * @example {
         *       "expires_at": "2026-11-18T09:00:00Z",
         *       "url": "http://p-agjn7tlzwb3orzrm3kyo2yzqdqpuaa3i2jqbtqk7m6o3b2cyqzkxlwtg4u2a.localhost:7832/"
         *     }
         */
        PortLink: {
            /** @description URL of the link. Everyone who has it can use the port. */
            url: string;
            /** @description Time of its expiry. */
            expires_at: string;
        };
        /** @description An error response (RFC 9457). */
        Problem: {
            /**
             * @description The kind of problem as a relative URI; corresponds to `code`.
             * @example /docs#not_found
             */
            type: string;
            /** @description The kind of problem as text. */
            title: string;
            /**
             * Format: int32
             * @description The HTTP status.
             * @example 404
             */
            status: number;
            /** @description What went wrong with this request. */
            detail: string;
            /** @description The kind of problem, for programs. */
            code: components["schemas"]["Code"];
            /** @description For invalid input: every invalid field. */
            errors?: components["schemas"]["FieldError"][];
            /** @description For `/readyz`: what was checked. */
            checks?: components["schemas"]["ReadinessCheck"][];
        };
        /** @description Settings of a project that differ from the defaults. */
        ProjectConfig: {
            /** @description The backend of the files below a prefix: `filesystem`, `state` or `store`. */
            routes?: {
                [key: string]: string;
            };
            /** @description Whether the instance is stopped when the last client disconnects. */
            stop_on_disconnect?: boolean;
            /** @description Whether a stopped instance is recreated when a client reconnects. */
            recreate_on_reconnect?: boolean;
            /**
             * Format: int32
             * @description Idle days after which cleanup deletes the project.
             */
            cleanup_after_days?: number;
        };
        /** @description Activity in a project. */
        ProjectCounts: {
            /**
             * Format: int64
             * @description Number of sessions.
             */
            sessions: number;
            /**
             * Format: int64
             * @description Number of commands.
             */
            commands: number;
            /**
             * Format: int64
             * @description Bytes of command output.
             */
            bytes: number;
            /**
             * Format: int64
             * @description Size of its files on disk in bytes; omitted in lists.
             */
            disk_bytes?: number | null;
            /** @description Time of the last activity. */
            last_access: string;
        };
        /**
         * @description The fields to change; omitted fields stay as they are.
         * @example {
         *       "description": "A demonstration"
         *     }
         */
        ProjectPatch: {
            /** @description Description of the project. */
            description?: string | null;
            /** @description Tags set by clients. */
            tags?: string[] | null;
            config?: components["schemas"]["ProjectConfig"] | null;
        };
        /** @description A thread with an open session. */
        ProjectSession: {
            /** @description Id of the project. */
            project_id: string;
            /** @description Id of the thread. */
            thread_id: string;
            /** @description Id of the session. */
            session_id: string;
            /** @description Id of the default terminal. */
            terminal_id: string;
            /** @description Id of the lease. */
            lease_id: string;
            /** @description Time at which the session expires without activity. */
            expires_at: string;
        };
        /** @description A project and its statistics. */
        ProjectView: {
            /** @description Id of the project. */
            project_id: string;
            /** @description The chosen prefix of the id. */
            prefix: string;
            /** @description Description of the project. */
            description: string;
            /** @description Tags set by clients. */
            tags: string[];
            /** @description Settings of this project that differ from the defaults. */
            config: components["schemas"]["ProjectConfig"];
            /**
             * @description The backend of each route of the project's file tree: `filesystem` (disk), `state` (memory) or `store`
             *     (database). Routes of `config` take precedence over the setting `project.routes` of the server.
             */
            routes: {
                [key: string]: string;
            };
            /** @description Whether the project is exempt from automatic deletion. */
            pinned: boolean;
            /** @description Time of its automatic deletion without further activity; null means never. */
            deletes_at?: string | null;
            /** @description Time of the first warning about its deletion. */
            warned_at?: string | null;
            /** @description Activity in the project. */
            statistics: components["schemas"]["ProjectCounts"];
            /** @description Creation time. */
            created_at: string;
            /** @description Time of the last change. */
            updated_at: string;
        };
        /** @description Capabilities of a provider. */
        ProviderCapabilities: {
            /** @description Whether terminals are real PTYs. */
            hosted: boolean;
            /** @description What a paused instance keeps: `memory`, `filesystem` or `none`. */
            pause: string;
            /** @description Whether resource usage is measured. */
            metrics: boolean;
            /** @description The mechanisms that isolate instances; empty if there are none. */
            isolation: string[];
        };
        /** @description A provider of compute. */
        ProviderView: {
            /** @description Name of the provider. */
            name: string;
            /** @description Whether this is the default provider. */
            default: boolean;
            /** @description Whether the provider can be used on this machine. */
            available: boolean;
            /** @description Capabilities of the provider. */
            capabilities?: components["schemas"]["ProviderCapabilities"];
            /** @description What a suspended instance keeps: `filesystem`, `memory` or `none`. */
            suspend?: string | null;
            /** @description Number of instances in the warm pool, if there is one. */
            ready?: number | null;
            /** @description What this machine lacks to use it. */
            missing: string[];
        };
        /** @description The readiness of the server. */
        Readiness: {
            /** @description Always `ready`. */
            status: string;
            /** @description What was checked. A failed check here is a warning. */
            checks: components["schemas"]["ReadinessCheck"][];
        };
        /** @description One part of the server's readiness. */
        ReadinessCheck: {
            /** @description The part that was checked. */
            name: components["schemas"]["ReadinessPart"];
            /** @description Whether the check passed. */
            ok: boolean;
            /** @description The cause of a failed check. Only callers with the token see it. */
            reason?: string | null;
        };
        /**
         * @description A part of the server's readiness. The server is not ready if `shutdown` or `store` fails; the others are warnings.
         * @enum {string}
         */
        ReadinessPart: "shutdown" | "store" | "disk" | "hosts" | "providers";
        /**
         * @description The version to restore.
         * @example {
         *       "version": 3
         *     }
         */
        RollbackRequest: {
            /**
             * Format: int64
             * @description Number of the version.
             */
            version: number;
        };
        /**
         * @description Changes to a sandbox; omitted fields stay as they are.
         * @example {
         *       "labels": {
         *         "team": "web"
         *       },
         *       "timeout_s": 7200
         *     }
         */
        SandboxChange: {
            /** @description New name, unique within the project. */
            name?: string | null;
            /** @description Labels, which replace all previous ones. */
            labels?: {
                [key: string]: string;
            } | null;
            /**
             * Format: int64
             * @description Lifetime in seconds, from now.
             */
            timeout_s?: number | null;
            on_timeout?: components["schemas"]["OnTimeout"] | null;
        };
        /**
         * @description Options of a fork; omitted ones are those of the original.
         * @example {
         *       "name": "attempt-2"
         *     }
         */
        SandboxForkRequest: {
            /** @description Whether memory is copied as well; refused if the provider does not support it. */
            memory?: boolean | null;
            /** @description Name of the fork, unique within the project. */
            name?: string | null;
            /** @description Labels of the fork. */
            labels?: {
                [key: string]: string;
            } | null;
            /**
             * Format: int64
             * @description Lifetime of the fork in seconds.
             */
            timeout_s?: number | null;
        };
        /**
         * @description A sandbox to create; all fields are optional.
         * @example {
         *       "labels": {
         *         "team": "web"
         *       },
         *       "memory": "2g",
         *       "name": "build",
         *       "timeout_s": 3600
         *     }
         */
        SandboxRequest: {
            /** @description Name, unique within the project. If a sandbox of this name exists, it is returned instead. */
            name?: string | null;
            /** @description Id of its project. */
            project_id?: string | null;
            /** @description Name of its provider; the default provider if omitted. */
            provider?: string | null;
            /** @description Image whose files it starts with. */
            image?: string | null;
            /** @description Snapshot whose files it starts with. */
            snapshot?: string | null;
            /**
             * Format: double
             * @description Number of CPUs.
             */
            cpus?: number | null;
            /** @description Memory limit, e.g. `512m`. */
            memory?: string | null;
            /**
             * Format: int64
             * @description Maximum number of processes and threads.
             */
            processes?: number | null;
            /** @description Disk limit, e.g. `10g`. */
            disk?: string | null;
            egress?: components["schemas"]["EgressPolicy"] | null;
            /**
             * @description Capabilities of root inside, over its own files and users: `root`, with which it installs packages and
             *     manages users, or `none`, with which the machine's programs are read-only.
             */
            capabilities?: string | null;
            /** @description Environment variables of its shells. */
            env?: {
                [key: string]: string;
            } | null;
            /**
             * Format: int64
             * @description Lifetime in seconds; unlimited if omitted. A use after the lifetime starts a new one.
             */
            timeout_s?: number | null;
            /** @description What happens at the end of the lifetime: `suspend` (default) or `destroy`. */
            on_timeout?: components["schemas"]["OnTimeout"];
            /** @description Labels set by clients. */
            labels?: {
                [key: string]: string;
            };
        };
        /** @description Settings of a sandbox. */
        SandboxSettings: {
            /** @description Image whose files it starts with. */
            image?: string;
            /** @description Snapshot whose files it starts with. */
            snapshot?: string;
            /**
             * Format: double
             * @description Number of CPUs.
             */
            cpus?: number;
            /** @description Memory limit, e.g. `512m`. */
            memory?: string;
            /**
             * Format: int64
             * @description Maximum number of processes and threads.
             */
            processes?: number;
            /** @description Disk limit, e.g. `10g`. */
            disk?: string;
            /** @description Allowed outgoing connections. */
            egress?: components["schemas"]["EgressPolicy"];
            /** @description Capabilities of root inside: `root`, or `none` for read-only programs. */
            capabilities?: string;
        };
        /**
         * @description What a suspension or a fork keeps.
         * @example {
         *       "memory": false
         *     }
         */
        SandboxSuspendRequest: {
            /** @description Whether memory is kept as well; refused if the provider does not support it. */
            memory?: boolean | null;
        };
        /** @description A sandbox. */
        SandboxView: {
            /** @description Id of the sandbox, which is also the id of its thread. */
            sandbox_id: string;
            /** @description Name of the sandbox. */
            name?: string | null;
            /** @description Id of its project. */
            project_id: string;
            /** @description Id of its thread. */
            thread_id: string;
            /** @description Id of the default terminal of its thread. */
            terminal_id: string;
            /** @description Id of its lease. */
            lease_id: string;
            /** @description Name of its provider. */
            provider: string;
            /** @description `running` (or starts on its next use), `paused`, `suspended`, `stopped` or `archived`. */
            state: string;
            /** @description The image, snapshot or template it started from; empty for the default. */
            template: string;
            /** @description The API it was created through: `stead` for this one, otherwise the name of the other API. */
            origin: string;
            /** @description Labels set by clients. */
            labels: {
                [key: string]: string;
            };
            /**
             * Format: int64
             * @description Lifetime in seconds; null if it is unlimited.
             */
            timeout_s?: number | null;
            /** @description What happens at the end of the lifetime: `suspend`, `pause` or `destroy`. */
            on_timeout: string;
            /** @description End of the lifetime; null if it is unlimited. */
            expires_at?: string | null;
            /** @description Time of the last use. */
            last_active_at?: string | null;
            /** @description Creation time. */
            created_at: string;
            /** @description Time of the last change. */
            updated_at: string;
        };
        /** @description The screen of a terminal. */
        ScreenSnapshot: {
            /** @description Escape sequences that reproduce the screen in a new terminal of the same size. */
            data: string;
            /**
             * Format: int64
             * @description Offset of the output that the screen includes.
             */
            offset: number;
            /**
             * Format: int32
             * @description Number of columns.
             */
            cols: number;
            /**
             * Format: int32
             * @description Number of rows.
             */
            rows: number;
            /** @description Position of the cursor. */
            cursor: components["schemas"]["CursorView"];
            /** @description Window title. */
            title: string;
            /** @description Whether the alternate screen is active. */
            alt_screen: boolean;
        };
        /** @description A command that matches. */
        SearchItem: {
            /** @description Id of the command. */
            command_id: string;
            /** @description Id of its thread. */
            thread_id: string;
            /** @description Id of its terminal. */
            terminal_id: string;
            /** @description The command text. */
            command: string;
            /** @description `agent` for exec, `person` for typed commands. */
            source: string;
            /** @description `queued`, `running`, `finished`, `timed_out`, `cancelled`, `lost` or `not_started`. */
            status: string;
            /**
             * Format: int32
             * @description Exit code; null unless the command exited.
             */
            exit_code?: number | null;
            /** @description Time of the request. */
            created_at: string;
            /** @description Whether the command text matches. */
            in_command: boolean;
            /** @description The first five matching lines of the output. */
            lines: components["schemas"]["MatchingLine"][];
            /** @description Whether more lines match. */
            more_lines: boolean;
        };
        /** @description A line that matches the pattern. */
        SearchMatch: {
            /** @description Path of the file. */
            path: string;
            /**
             * Format: int64
             * @description Line number, from 1.
             */
            line: number;
            /**
             * Format: int64
             * @description Position of the match in the line in bytes, from 1.
             */
            column: number;
            /** @description Text of the line; long lines are truncated. */
            text: string;
        };
        /** @description The result of a search. */
        SearchMatches: {
            /** @description The matching lines. */
            items: components["schemas"]["SearchMatch"][];
            /**
             * Format: int64
             * @description Number of files searched.
             */
            files: number;
            /** @description Whether there may be more matches. */
            truncated: boolean;
            /** @description The limit that ended the search early. */
            reason?: string | null;
        };
        /** @description A page of results. */
        SearchResults: {
            /** @description The matching commands, newest first. May be empty before the last page. */
            items: components["schemas"]["SearchItem"][];
            /** @description The `cursor` with which the search continues; null if everything was searched. */
            next_cursor?: string | null;
            /** @description The limit that ended the search of this page early: `items`, `bytes` or `time`. */
            stopped?: string | null;
            /**
             * Format: int64
             * @description Number of commands searched for this page.
             */
            commands: number;
            /**
             * Format: int64
             * @description Bytes of output read for this page.
             */
            bytes: number;
        };
        /** @description Limits of a session. */
        SessionPolicy: {
            /**
             * Format: int64
             * @description Seconds without activity after which the session expires.
             */
            idle_timeout_s: number;
            /**
             * Format: int64
             * @description Seconds after which the session expires in any case.
             */
            max_duration_s: number;
            /** @description What happens to the instance when the session ends: `keep`, `pause` or `stop`. */
            on_expiry: string;
            /**
             * Format: double
             * @description Maximum running time of the instance during the session, in hours; absent if there is no limit.
             */
            max_running_hours?: number;
            /**
             * Format: double
             * @description Maximum cost of the instance during the session; absent if there is no limit.
             */
            max_cost?: number;
        };
        /** @description The record of a session. */
        SessionRecordView: {
            /** @description Id of the session. */
            session_id: string;
            /** @description Id of its thread. */
            thread_id: string;
            /** @description `active`, `idle`, `expired` or `closed`. */
            status: string;
            /** @description Creation time. */
            created_at: string;
            /** @description Time of the last activity. */
            last_active_at: string;
            /** @description Time of its end; null while it is open. */
            ended_at?: string | null;
        };
        /** @description A session of a thread. */
        SessionView: {
            /** @description Id of the thread. */
            thread_id: string;
            /** @description Id of the session. */
            session_id: string;
            /** @description Id of the thread's default terminal. */
            terminal_id: string;
            /** @description `active`, `idle`, `expired` or `closed`. */
            status: string;
            /** @description The limit that expired the session: `idle_timeout`, `max_duration`, `max_running` or `max_cost`. */
            ended?: string | null;
            /** @description Creation time. */
            created_at: string;
            /** @description Time of the last activity. */
            last_active_at: string;
            /** @description Time at which the session expires without further activity, or at which it ended. */
            expires_at: string;
            /** @description Limits of the session. */
            policy: components["schemas"]["SessionPolicy"];
        };
        /** @description A share link, without its secret. */
        ShareView: {
            /** @description Id of the link. */
            share_id: string;
            /** @description Id of the terminal. */
            terminal_id: string;
            /** @description Name of the link. */
            name: string;
            /** @description `active`, `expired` or `revoked`. */
            status: string;
            /** @description Creation time. */
            created_at: string;
            /** @description Time of its expiry. */
            expires_at: string;
            /** @description Time of its revocation. */
            revoked_at?: string | null;
            /** @description URL of the link. Only present in the response that created it. */
            url?: string | null;
        };
        /** @description A sign-in link. */
        SignInLink: {
            /** @description The URL. It works once. */
            url: string;
            /**
             * Format: int64
             * @description Seconds until the link expires.
             */
            expires_in_s: number;
        };
        /**
         * @description A signal to send.
         * @example {
         *       "signal": "INT"
         *     }
         */
        SignalRequest: {
            /**
             * @description Name of the signal, with or without `SIG`, or its number.
             * @example INT
             */
            signal: string;
        };
        /** @description A snapshot of the files of a lease. A thread with `sandbox: {"snapshot": NAME}` starts from it. */
        SnapshotView: {
            /** @description Name of the snapshot. */
            name: string;
            /** @description Name of its provider. */
            provider: string;
            /**
             * Format: int64
             * @description Size on disk in bytes.
             */
            bytes: number;
            /** @description Creation time. */
            created_at: string;
        };
        /** @description Changes of a command to the state of its shell. */
        StateChanges: {
            cwd?: components["schemas"]["CwdChange"] | null;
            /** @description Changes of the exported environment, `{set, unset}`. */
            env: components["schemas"]["EnvChange"];
        };
        /**
         * @description Standard input for a command. Needs `data`, `data_base64` or `eof`.
         * @example {
         *       "data": "yes\n",
         *       "write_id": "w1"
         *     }
         */
        StdinRequest: {
            /** @description Input as text. */
            data?: string | null;
            /** @description Input as base64. */
            data_base64?: string | null;
            /** @description Makes repeated requests safe: input with the same id is written once. */
            write_id?: string | null;
            /** @description Closes standard input after this data. */
            eof?: boolean;
        };
        /** @enum {string} */
        SuspendKeep: "filesystem" | "memory";
        /**
         * @description Options of a suspension.
         * @example {
         *       "fidelity": "filesystem"
         *     }
         */
        SuspendRequest: {
            /** @description What to keep: `filesystem` (default) or `memory`. Refused if the provider does not support it. */
            fidelity?: components["schemas"]["SuspendKeep"];
        };
        /**
         * @description The size of a terminal.
         * @example {
         *       "cols": 120,
         *       "rows": 40
         *     }
         */
        TerminalSize: {
            /**
             * Format: int32
             * @description Columns, 1 to 1000.
             */
            cols: number;
            /**
             * Format: int32
             * @description Rows, 1 to 1000.
             */
            rows: number;
        };
        /** @description The state of a terminal. */
        TerminalStateView: {
            /** @description Id of the terminal. */
            terminal_id: string;
            /**
             * Format: int64
             * @description Number of the version.
             */
            version: number;
            /** @description Working directory of the shell. */
            cwd: string;
            /** @description Changes of the environment since the start; null for a removed variable. */
            env_delta: {
                [key: string]: string | null;
            };
        };
        /** @description A terminal and its live state. */
        TerminalView: {
            /** @description Id of the terminal. */
            terminal_id: string;
            /** @description The same id, for clients of the older protocol. */
            ptyID: string;
            /** @description Id of its thread. */
            thread_id: string;
            /** @description Id of its lease. */
            lease_id: string;
            /** @description Whether this is the default terminal of the thread. */
            is_default: boolean;
            /** @description `live`, `exited` or `restorable`; the next use of a restorable terminal starts a shell from its state. */
            status: string;
            /** @description Program and arguments; empty for the shell. */
            cmd: string[];
            /** @description `bash`, `zsh` or `sh`. */
            shell: string;
            /**
             * Format: int32
             * @description Number of columns.
             */
            cols: number;
            /**
             * Format: int32
             * @description Number of rows.
             */
            rows: number;
            /** @description Window title. */
            title: string;
            /** @description Working directory of the shell. */
            cwd: string;
            /** @description Changes of the environment since the start; null for a removed variable. */
            env_delta: {
                [key: string]: string | null;
            };
            /**
             * Format: int64
             * @description Version of its state.
             */
            version: number;
            /** @description Number of attached clients. */
            clients: number;
            /** @description Name of the client that has control. */
            driver?: string | null;
            /**
             * Format: int64
             * @description Offset after the last byte of output.
             */
            offset: number;
            /**
             * Format: int32
             * @description Exit code of its program.
             */
            exit_code?: number | null;
            /** @description Name of the signal that ended its program. */
            signal?: string | null;
            /** @description Creation time. */
            created_at: string;
            /** @description Time of the last change. */
            updated_at: string;
            /** @description Time of the last input or output. */
            last_activity_at: string;
        };
        /**
         * @description Options of a thread; all are optional.
         * @example {
         *       "env": {
         *         "CI": "1"
         *       },
         *       "policy": {
         *         "idle_timeout_s": 3600
         *       },
         *       "project_id": "demo-0a1b2c3d"
         *     }
         */
        ThreadRequest: {
            /** @description Id of its project. */
            project_id?: string | null;
            /** @description Provider of its lease; cannot be changed later. */
            provider?: string | null;
            sandbox?: components["schemas"]["SandboxSettings"] | null;
            /** @description Id of a lease to share; cannot be changed later. */
            lease_id?: string | null;
            policy?: components["schemas"]["PolicyRequest"] | null;
            /** @description Environment variables of its shells. */
            env?: {
                [key: string]: string;
            } | null;
            /** @description Initial working directory of its shells. */
            cwd?: string | null;
            /** @description Labels set by clients. */
            labels?: {
                [key: string]: string;
            } | null;
        };
        /** @description A thread in a list. */
        ThreadRow: {
            /** @description Id of the thread. */
            thread_id: string;
            /** @description Id of its project. */
            project_id: string;
            /** @description Id of its default terminal. */
            terminal_id: string;
            /** @description Id of its lease. */
            lease_id: string;
            /** @description The requested provider; null for the default. */
            provider?: string | null;
            /** @description Compute of the thread. */
            sandbox: components["schemas"]["ThreadRowSandbox"];
            last_command?: components["schemas"]["CommandSummary"] | null;
            /** @description The command that each of its terminals runs or has queued; first those that wait for input. */
            current_commands: components["schemas"]["CommandSummary"][];
            /**
             * Format: int64
             * @description Number of open hand-offs on its terminals.
             */
            open_handoffs: number;
            /** @description Number of clients attached to its terminals. */
            clients: number;
            /** @description Name of the client that has control of one of its terminals. */
            driver?: string | null;
            /** @description Labels set by clients. */
            labels: {
                [key: string]: string;
            };
            /** @description Creation time. */
            created_at: string;
            /** @description Time of the last change or use. */
            updated_at: string;
        };
        /** @description The compute of a thread in a list. */
        ThreadRowSandbox: {
            /** @description Name of the provider. */
            type: string;
            /** @description State of the instance: `running`, `paused`, `dead` or `none`. */
            status: string;
        };
        /** @description The compute of a thread. */
        ThreadSandbox: {
            /** @description Name of the provider. */
            type: string;
            /** @description State of the instance: `running`, `paused`, `dead` or `none`. */
            status: string;
            /** @description Id of the open session or, if there is none, the last one. */
            session_id?: string | null;
            /** @description Id of the default terminal. */
            terminal_id: string;
            /** @description Id of the lease. */
            lease_id: string;
        };
        /** @description A thread with its messages and compute. */
        ThreadView: {
            /** @description Id of the thread. */
            thread_id: string;
            /** @description Id of its project. */
            project_id: string;
            /** @description The latest messages, oldest first. */
            messages: components["schemas"]["MessageView"][];
            /** @description Compute of the thread. */
            sandbox: components["schemas"]["ThreadSandbox"];
            last_command?: components["schemas"]["CommandSummary"] | null;
            /** @description The command that each of its terminals runs or has queued; first those that wait for input. */
            current_commands: components["schemas"]["CommandSummary"][];
            /**
             * Format: int64
             * @description Number of open hand-offs on its terminals.
             */
            open_handoffs: number;
            /** @description Labels set by clients. */
            labels: {
                [key: string]: string;
            };
            /** @description Creation time. */
            created_at: string;
            /** @description Time of the last change or use. */
            updated_at: string;
        };
        /** @description A deleted project. */
        TrashedProject: {
            /** @description Id of the project. */
            project_id: string;
            /** @description Description of the project. */
            description: string;
            /** @description Time of the deletion. */
            deleted_at: string;
            /** @description Time until which the project can be restored. */
            restorable_until: string;
            /** @description Reason of the deletion. */
            reason: string;
        };
        /**
         * @description Input to type: either `data` or `data_base64`.
         * @example {
         *       "data": "ls\r"
         *     }
         */
        TypedInput: {
            /** @description Input as text. */
            data?: string | null;
            /** @description Input as base64. */
            data_base64?: string | null;
            /** @description Makes repeated requests safe: input with the same id is typed once. */
            write_id?: string | null;
        };
        /** @description What caused a version of a terminal's state. */
        VersionCause: {
            /** @description `created`, `exec`, `typed`, `patch`, `rollback` or `fork`. */
            kind: string;
            /** @description Id of the command, for `exec`. */
            command_id?: string;
            /**
             * Format: int64
             * @description The restored version, for `rollback`.
             */
            to?: number;
            /** @description Id of the copied terminal, for `fork`. */
            from?: string;
            /**
             * Format: int64
             * @description The copied version, for `fork`.
             */
            version?: number;
        };
        /** @description The content of one version of a terminal's state. */
        VersionDetail: {
            /** @description Id of the terminal. */
            terminal_id: string;
            /**
             * Format: int64
             * @description Number of the version.
             */
            version: number;
            /** @description Working directory of the shell. */
            cwd: string;
            /** @description The exported environment. */
            env: {
                [key: string]: string;
            };
            /** @description Sections of the state as shell source, by name. */
            sections: {
                [key: string]: string;
            };
            /** @description With `since`: variables that only the other version exports. */
            unset?: string[];
        };
        /** @description One version of a terminal's state. */
        VersionView: {
            /**
             * Format: int64
             * @description Number of the version.
             */
            version: number;
            /** @description Working directory of the shell. */
            cwd: string;
            /** @description What caused the version. */
            cause: components["schemas"]["VersionCause"];
            /** @description Creation time. */
            at: string;
            /** @description Sections of the state that differ from the previous version. */
            changed: string[];
        };
        /** @description The result of a write. */
        WrittenFile: {
            /** @description Path of the file. */
            path: string;
            /**
             * Format: int64
             * @description Size in bytes.
             */
            size: number;
            /** @description Entity tag for `If-Match`. */
            etag?: string | null;
        };
    };
    responses: never;
    parameters: never;
    requestBodies: never;
    headers: never;
    pathItems: never;
}
export type $defs = Record<string, never>;
export interface operations {
    "commands.get": {
        parameters: {
            query?: {
                /**
                 * @description `true` returns the values of variables whose names suggest a secret (`…KEY`, `…TOKEN`, `…PASSWORD`);
                 *     by default they are `***`.
                 */
                reveal?: boolean;
                /** @description Time to wait for the end of the command, in milliseconds; at most 60000. */
                wait_ms?: number;
            };
            header?: never;
            path: {
                /** @description Id of the command */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The receipt */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["CommandReceipt"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "commands.cancel": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the command */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The cancellation was accepted */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "commands.output": {
        parameters: {
            query?: {
                /** @description `stdout` (default) or `stderr`. */
                stream?: string;
                /** @description Offset of the first byte; 0 by default. */
                from?: number;
                /** @description Maximum number of bytes; 1 MiB by default, 8 MiB at most. */
                limit?: number;
                /** @description Time to wait for the first byte, in milliseconds; at most 60000. */
                wait_ms?: number;
            };
            header?: never;
            path: {
                /** @description Id of the command */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The bytes. `X-Offset` and `X-Next-Offset` give their range; `X-End: true` means that no more output can follow */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/octet-stream": components["schemas"]["Binary"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "commands.signal": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the command */
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["SignalRequest"];
            };
        };
        responses: {
            /** @description The signal was sent */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "commands.write_stdin": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the command */
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["StdinRequest"];
            };
        };
        responses: {
            /** @description The input was accepted */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "events.stream": {
        parameters: {
            query?: {
                /** @description Start after this event id; for clients that cannot send `Last-Event-ID`. */
                from?: number;
            };
            header?: {
                /** @description Id of the last received event */
                "Last-Event-ID"?: number | null;
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A stream of server-sent events */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/event-stream": string;
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "handoffs.list": {
        parameters: {
            query?: {
                /** @description Only hand-offs with this status: `open`, `answered`, `declined` or `expired`. */
                status?: string;
                /** @description Only hand-offs of this thread. */
                thread_id?: string;
                /** @description Only hand-offs of this terminal. */
                terminal_id?: string;
                /** @description Maximum number of items; 100 by default, 1000 at most. */
                limit?: number;
                /** @description The `next_cursor` of the previous page. */
                cursor?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page of hand-offs */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["List_HandoffView"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "handoffs.get": {
        parameters: {
            query?: {
                /** @description Time to wait until the hand-off is settled, in milliseconds; at most 60000. */
                wait_ms?: number;
            };
            header?: never;
            path: {
                /** @description Id of the hand-off */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The hand-off */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HandoffView"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "handoffs.answer": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the hand-off */
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["AnswerRequest"];
            };
        };
        responses: {
            /** @description The answered hand-off */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HandoffView"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "handoffs.decline": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the hand-off */
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["DeclineRequest"];
            };
        };
        responses: {
            /** @description The declined hand-off */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HandoffView"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "images.list_builds": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The latest builds of each image */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["List_ImageBuildView"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "images.build": {
        parameters: {
            query: {
                /**
                 * @description Name of the image, as `sandbox.image` names it later: `NAME`, `NAME:TAG` or `REGISTRY/NAME:TAG`.
                 * @example tools
                 */
                name: string;
                /** @description Path of the Dockerfile among the files. */
                file?: string;
                /**
                 * @description Values for `ARG`, as a JSON object of strings.
                 * @example {"VERSION":"3"}
                 */
                args?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/octet-stream": components["schemas"]["Binary"];
            };
        };
        responses: {
            /** @description The build, which has started */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ImageBuildView"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "images.get_build": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the build. */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The build */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ImageBuildView"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "images.stream_build_log": {
        parameters: {
            query?: {
                /** @description Number of lines to skip. */
                from?: number;
            };
            header?: never;
            path: {
                /** @description Id of the build. */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A stream of server-sent events */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/event-stream": string;
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "leases.list": {
        parameters: {
            query?: {
                /** @description Only leases of this provider. */
                provider?: string;
                /** @description Maximum number of items; 100 by default, 1000 at most. */
                limit?: number;
                /** @description The `next_cursor` of the previous page. */
                cursor?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page of leases */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["List_LeaseView"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "leases.get": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the lease */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The lease */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["LeaseView"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "leases.destroy": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the lease */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The lease */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["LeaseView"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "leases.fork": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the lease */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The new lease */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["LeaseView"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "leases.pause": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the lease */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The lease */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["LeaseView"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "leases.resume": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the lease */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The lease */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["LeaseView"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "snapshots.create": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the lease */
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NewSnapshot"];
            };
        };
        responses: {
            /** @description The snapshot */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SnapshotView"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "leases.suspend": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the lease */
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["SuspendRequest"];
            };
        };
        responses: {
            /** @description The lease */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["LeaseView"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "ledger.list": {
        parameters: {
            query?: {
                /** @description Maximum number of entries; 100 by default, 1000 at most. */
                limit?: number;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The most recent entries */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["List_LedgerView"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "server.create_sign_in_link": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The link */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SignInLink"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "server.sign_out": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Signed out; the cookie is removed */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "projects.list": {
        parameters: {
            query?: {
                /** @description Only projects whose id starts with this. */
                prefix?: string;
                /** @description Only projects with this tag. */
                tag?: string;
                /** @description Maximum number of items; 100 by default, 1000 at most. */
                limit?: number;
                /** @description The `next_cursor` of the previous page. */
                cursor?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page of projects */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["List_ProjectView"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "projects.create": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NewProject"];
            };
        };
        responses: {
            /** @description The project */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ProjectView"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "projects.plan_cleanup": {
        parameters: {
            query?: {
                /** @description Report the actions without performing them. */
                dry_run?: boolean;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The planned actions with their reasons */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["List_CleanupCandidate"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "projects.run_cleanup": {
        parameters: {
            query?: {
                /** @description Report the actions without performing them. */
                dry_run?: boolean;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The actions with their reasons */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["List_CleanupCandidate"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "projects.import": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/zstd": components["schemas"]["Binary"];
            };
        };
        responses: {
            /** @description The imported project */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ImportedProject"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "projects.list_trash": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description All deleted projects */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["List_TrashedProject"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "projects.get": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the project */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The project */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ProjectView"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "projects.delete": {
        parameters: {
            query?: {
                /**
                 * @description `true` (default) waits a few seconds for the deletion to complete and responds with 204; `false`
                 *     responds with 202 as soon as it is recorded.
                 */
                wait?: boolean;
            };
            header?: never;
            path: {
                /** @description Id of the project */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The deletion was recorded (`wait=false`) */
            202: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description The project is in the trash */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "projects.update": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the project */
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ProjectPatch"];
            };
        };
        responses: {
            /** @description The changed project */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ProjectView"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "projects.export": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the project */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The archive. `X-Disk-Bytes` is the size of the project on disk */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/zstd": components["schemas"]["Binary"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "projects.extend": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the project */
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ExtendProject"];
            };
        };
        responses: {
            /** @description The project with its new `deletes_at` */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ProjectView"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "memories.list": {
        parameters: {
            query?: {
                /** @description Number of levels; 1 by default. */
                depth?: number;
                /** @description Maximum number of items; 100 by default, 1000 at most. */
                limit?: number;
                /** @description The `next_cursor` of the previous page. */
                cursor?: string;
            };
            header?: never;
            path: {
                /** @description Id of the project */
                id: string;
                /** @description `hot` or `persistent` */
                store: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page of memories */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["List_FileStat"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "memories.read": {
        parameters: {
            query?: {
                /** @description Offset of the first byte; 0 by default. */
                offset?: number;
                /** @description Maximum number of bytes or, for a directory, items. */
                limit?: number;
                /** @description `raw` (default) or `json`. */
                format?: string;
                /** @description For a directory: number of levels; 1 by default. */
                depth?: number;
                /** @description For a directory: the `next_cursor` of the previous page. */
                cursor?: string;
            };
            header?: never;
            path: {
                /** @description Id of the project */
                id: string;
                /** @description `hot` or `persistent` */
                store: string;
                /** @description Path of the memory */
                path: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The content; for a directory, a page of its entries */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/octet-stream": components["schemas"]["Binary"];
                    "application/json": components["schemas"]["FileText"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "memories.write": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the project */
                id: string;
                /** @description `hot` or `persistent` */
                store: string;
                /** @description Path of the memory */
                path: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/octet-stream": components["schemas"]["Binary"];
            };
        };
        responses: {
            /** @description The memory was replaced */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["WrittenFile"];
                };
            };
            /** @description The memory was created */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["WrittenFile"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "memories.delete": {
        parameters: {
            query?: {
                /** @description Delete a directory with its content. */
                recursive?: boolean;
            };
            header?: never;
            path: {
                /** @description Id of the project */
                id: string;
                /** @description `hot` or `persistent` */
                store: string;
                /** @description Path of the memory */
                path: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The memory was deleted */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "projects.pin": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the project */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The pinned project */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ProjectView"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "projects.restore": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the project */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The restored project */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ProjectView"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "projects.list_sessions": {
        parameters: {
            query?: {
                /** @description Maximum number of items; 100 by default, 1000 at most. */
                limit?: number;
                /** @description The `next_cursor` of the previous page. */
                cursor?: string;
            };
            header?: never;
            path: {
                /** @description Id of the project */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page of session records */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["List_SessionRecordView"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "projects.open_session": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the project */
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NewProjectSession"];
            };
        };
        responses: {
            /** @description The thread with its open session */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ProjectSession"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "memories.snapshot": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the project */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The snapshot is on disk */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["MemorySnapshot"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "projects.unpin": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the project */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The unpinned project */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ProjectView"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "providers.list": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description All providers */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["List_ProviderView"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "sandboxes.list": {
        parameters: {
            query?: {
                /** @description Only sandboxes with these labels, `KEY=VALUE`, separated by commas. */
                label?: string;
                /** @description Only sandboxes in one of these states, separated by commas. */
                state?: string;
                /** @description Only sandboxes of this project. */
                project_id?: string;
                /** @description Maximum number of items; 100 by default, 1000 at most. */
                limit?: number;
                /** @description The `next_cursor` of the previous page. */
                cursor?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page of sandboxes */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["List_SandboxView"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "sandboxes.create": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["SandboxRequest"];
            };
        };
        responses: {
            /** @description The sandbox that has this name */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SandboxView"];
                };
            };
            /** @description The new sandbox */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SandboxView"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "sandboxes.get": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the sandbox */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The sandbox */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SandboxView"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "sandboxes.delete": {
        parameters: {
            query?: {
                /**
                 * @description `true` (default) waits a few seconds for the deletion to complete and responds with 204; `false`
                 *     responds with 202 as soon as it is recorded.
                 */
                wait?: boolean;
            };
            header?: never;
            path: {
                /** @description Id of the sandbox */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The deletion was recorded (`wait=false`) */
            202: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description The sandbox is deleted */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "sandboxes.update": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the sandbox */
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["SandboxChange"];
            };
        };
        responses: {
            /** @description The changed sandbox */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SandboxView"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "sandboxes.egress": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the sandbox */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The egress log */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["EgressLogView"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "sandboxes.extend": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the sandbox */
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ExtendRequest"];
            };
        };
        responses: {
            /** @description The sandbox */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SandboxView"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "sandboxes.fork": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the sandbox */
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["SandboxForkRequest"];
            };
        };
        responses: {
            /** @description The new sandbox */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SandboxView"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "sandboxes.pause": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the sandbox */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The sandbox */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SandboxView"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "sandboxes.resume": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the sandbox */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The sandbox */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SandboxView"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "sandboxes.snapshot": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the sandbox */
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NewSnapshot"];
            };
        };
        responses: {
            /** @description The snapshot */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SnapshotView"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "sandboxes.suspend": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the sandbox */
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["SandboxSuspendRequest"];
            };
        };
        responses: {
            /** @description The sandbox */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SandboxView"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "commands.search": {
        parameters: {
            query: {
                /** @description The text. Upper and lower case are the same. */
                q: string;
                /** @description Only commands of this thread. */
                thread?: string;
                /** @description Maximum number of items; 100 by default, 1000 at most. */
                limit?: number;
                /** @description The `next_cursor` of the previous page. */
                cursor?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page of commands that match */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SearchResults"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "sessions.list": {
        parameters: {
            query?: {
                /** @description Only sessions with this status: `active`, `idle`, `expired` or `closed`. */
                status?: string;
                /** @description Maximum number of items; 100 by default, 1000 at most. */
                limit?: number;
                /** @description The `next_cursor` of the previous page. */
                cursor?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page of sessions */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["List_SessionView"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "shares.list": {
        parameters: {
            query?: {
                /** @description Maximum number of items; 100 by default, 1000 at most. */
                limit?: number;
                /** @description The `next_cursor` of the previous page. */
                cursor?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page of links */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["List_ShareView"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "shares.open": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["OpenShare"];
            };
        };
        responses: {
            /** @description The share; the cookie is set */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ShareView"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "shares.revoke": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the link */
                share_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The link is revoked */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "snapshots.list": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description All snapshots */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["List_SnapshotView"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "snapshots.delete": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Name of the snapshot */
                name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The snapshot was deleted */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "terminals.list": {
        parameters: {
            query?: {
                /** @description Only terminals of this thread. */
                thread_id?: string;
                /** @description Only terminals with this status: `live`, `exited` or `restorable`. */
                status?: string;
                /** @description Maximum number of items; 100 by default, 1000 at most. */
                limit?: number;
                /** @description The `next_cursor` of the previous page. */
                cursor?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page of terminals */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["List_TerminalView"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "terminals.get": {
        parameters: {
            query?: {
                /**
                 * @description `true` returns the values of variables whose names suggest a secret (`…KEY`, `…TOKEN`, `…PASSWORD`);
                 *     by default they are `***`.
                 */
                reveal?: boolean;
            };
            header?: never;
            path: {
                /** @description Id of the terminal */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The terminal */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["TerminalView"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "terminals.delete": {
        parameters: {
            query?: {
                /**
                 * @description `true` (default) waits a few seconds for the deletion to complete and responds with 204; `false`
                 *     responds with 202 as soon as it is recorded.
                 */
                wait?: boolean;
            };
            header?: never;
            path: {
                /** @description Id of the terminal */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The deletion was recorded (`wait=false`) */
            202: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description The terminal is deleted */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "terminals.list_commands": {
        parameters: {
            query?: {
                /** @description Only commands whose text contains this string. */
                q?: string;
                /** @description Maximum number of items; 100 by default, 1000 at most. */
                limit?: number;
                /** @description The `next_cursor` of the previous page. */
                cursor?: string;
            };
            header?: never;
            path: {
                /** @description Id of the terminal */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page of commands */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["List_CommandView"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "terminals.update_env": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the terminal */
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["EnvPatch"];
            };
        };
        responses: {
            /** @description The new state */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["TerminalStateView"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "terminals.exec": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the terminal */
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ExecRequest"];
            };
        };
        responses: {
            /** @description The receipt. With `Accept: text/event-stream`: the events `started`, `stdout`, `stderr`, `gap` and `exit` as they happen */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["CommandReceipt"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "terminals.fork": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the terminal */
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ForkRequest"];
            };
        };
        responses: {
            /** @description The new terminal */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["TerminalView"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "handoffs.create": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the terminal */
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NewHandoffRequest"];
            };
        };
        responses: {
            /** @description The hand-off */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HandoffView"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "terminals.input": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the terminal */
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["TypedInput"];
            };
        };
        responses: {
            /** @description The input was accepted */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "terminals.recording": {
        parameters: {
            query?: {
                /** @description Add the offset after each output event as a fourth value. */
                offsets?: boolean;
            };
            header?: never;
            path: {
                /** @description Id of the terminal */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description One JSON value per line */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/x-asciicast": string;
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "terminals.resize": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the terminal */
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["TerminalSize"];
            };
        };
        responses: {
            /** @description The new size */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["TerminalSize"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "terminals.rollback": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the terminal */
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["RollbackRequest"];
            };
        };
        responses: {
            /** @description The new state */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["TerminalStateView"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "shares.current": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the terminal */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The share */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ShareView"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "terminals.list_shares": {
        parameters: {
            query?: {
                /** @description Maximum number of items; 100 by default, 1000 at most. */
                limit?: number;
                /** @description The `next_cursor` of the previous page. */
                cursor?: string;
            };
            header?: never;
            path: {
                /** @description Id of the terminal */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page of links */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["List_ShareView"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "shares.create": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the terminal */
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NewShare"];
            };
        };
        responses: {
            /** @description The link. Its URL is returned only here */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ShareView"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "terminals.signal": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the terminal */
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["SignalRequest"];
            };
        };
        responses: {
            /** @description The signal was sent */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "terminals.snapshot": {
        parameters: {
            query?: {
                /** @description `ansi` (default), `text` or `html`. */
                format?: string;
                /** @description Number of scrollback lines; by default all with `ansi`, none with `text` and `html`. */
                scrollback?: number;
            };
            header?: never;
            path: {
                /** @description Id of the terminal */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The screen. With `format=text` or `format=html` the body is the text or HTML itself */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ScreenSnapshot"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "terminals.stream": {
        parameters: {
            query?: {
                /** @description Start after this offset instead of with a snapshot; for clients that cannot send `Last-Event-ID`. */
                from?: number;
                /** @description `driver` (default) or `viewer`. A stream of events is always read-only. */
                mode?: string;
                /** @description Name of this client, shown to other clients. */
                name?: string;
                /** @description Whether to resume a paused instance; true by default. */
                resume?: boolean;
                /**
                 * @description `gzip`: snapshots on a WebSocket may be compressed, and are marked as such. Server-sent events are
                 *     compressed for clients that send `Accept-Encoding: gzip`.
                 */
                compress?: string;
            };
            header?: {
                /** @description Id of the last received event */
                "Last-Event-ID"?: number | null;
            };
            path: {
                /** @description Id of the terminal */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A stream of server-sent events */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/event-stream": string;
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "terminals.list_versions": {
        parameters: {
            query?: {
                /** @description Maximum number of items; 100 by default, 1000 at most. */
                limit?: number;
                /** @description The `next_cursor` of the previous page. */
                cursor?: string;
            };
            header?: never;
            path: {
                /** @description Id of the terminal */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page of versions */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["List_VersionView"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "terminals.get_version": {
        parameters: {
            query?: {
                /** @description Return only the differences from this version. */
                since?: number;
                /** @description `true` returns the values of variables whose names suggest a secret; by default they are `***`. */
                reveal?: boolean;
            };
            header?: never;
            path: {
                /** @description Id of the terminal */
                id: string;
                /** @description Number of the version */
                v: number;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The version */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["VersionDetail"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "terminals.connect": {
        parameters: {
            query?: {
                /** @description Start after this offset instead of with a snapshot; for clients that cannot send `Last-Event-ID`. */
                from?: number;
                /** @description `driver` (default) or `viewer`. A stream of events is always read-only. */
                mode?: string;
                /** @description Name of this client, shown to other clients. */
                name?: string;
                /** @description Whether to resume a paused instance; true by default. */
                resume?: boolean;
                /**
                 * @description `gzip`: snapshots on a WebSocket may be compressed, and are marked as such. Server-sent events are
                 *     compressed for clients that send `Accept-Encoding: gzip`.
                 */
                compress?: string;
            };
            header?: never;
            path: {
                /** @description Id of the terminal */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The connection is a WebSocket */
            101: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "threads.list": {
        parameters: {
            query?: {
                /** @description Only threads of this project. */
                project_id?: string;
                /** @description Maximum number of items; 100 by default, 1000 at most. */
                limit?: number;
                /** @description The `next_cursor` of the previous page. */
                cursor?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page of threads */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["List_ThreadRow"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "threads.get": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the thread */
                tid: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The thread */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ThreadView"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "threads.put": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the thread, chosen by the client */
                tid: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ThreadRequest"];
            };
        };
        responses: {
            /** @description The changed thread */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ThreadView"];
                };
            };
            /** @description The new thread */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ThreadView"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "threads.delete": {
        parameters: {
            query?: {
                /**
                 * @description `true` (default) waits a few seconds for the deletion to complete and responds with 204; `false`
                 *     responds with 202 as soon as it is recorded.
                 */
                wait?: boolean;
            };
            header?: never;
            path: {
                /** @description Id of the thread */
                tid: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The deletion was recorded (`wait=false`) */
            202: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description The thread is deleted */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "threads.exec": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the thread, chosen by the client */
                tid: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ExecRequest"];
            };
        };
        responses: {
            /** @description The receipt. With `Accept: text/event-stream`: the events `started`, `stdout`, `stderr`, `gap` and `exit` as they happen */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["CommandReceipt"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "files.list": {
        parameters: {
            query: {
                /** @description Path of the directory. */
                path: string;
                /** @description Number of levels; 1 by default, 64 at most. */
                depth?: number;
                /** @description Maximum number of items; 100 by default, 1000 at most. */
                limit?: number;
                /** @description The `next_cursor` of the previous page. */
                cursor?: string;
            };
            header?: never;
            path: {
                /** @description Id of the thread */
                tid: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page of files */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["List_FileStat"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "files.mkdir": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the thread */
                tid: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NewDirectory"];
            };
        };
        responses: {
            /** @description The directory was created */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["FileStat"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "files.move": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the thread */
                tid: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["MoveFile"];
            };
        };
        responses: {
            /** @description The metadata at the new path */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["FileStat"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "files.read": {
        parameters: {
            query: {
                /** @description Path of the file. */
                path: string;
                /** @description Offset of the first byte; 0 by default. */
                offset?: number;
                /** @description Maximum number of bytes. */
                limit?: number;
                /** @description `raw` (default) or `json`. */
                format?: string;
            };
            header?: never;
            path: {
                /** @description Id of the thread */
                tid: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The content. `X-Size` and `ETag` describe the whole file */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/octet-stream": components["schemas"]["Binary"];
                    "application/json": components["schemas"]["FileText"];
                };
            };
            /** @description The requested range */
            206: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "files.delete": {
        parameters: {
            query: {
                /** @description Path of the file or directory. */
                path: string;
                /** @description Delete a directory with its content. */
                recursive?: boolean;
            };
            header?: never;
            path: {
                /** @description Id of the thread */
                tid: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The file was deleted */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "files.search": {
        parameters: {
            query: {
                /** @description Path of the file or directory. */
                path: string;
                /** @description A regular expression, matched line by line. */
                pattern: string;
                /** @description Maximum number of matches; 100 by default, 1000 at most. */
                limit?: number;
            };
            header?: never;
            path: {
                /** @description Id of the thread */
                tid: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The matching lines */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SearchMatches"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "files.stat": {
        parameters: {
            query: {
                /** @description Path of the file or directory. */
                path: string;
            };
            header?: never;
            path: {
                /** @description Id of the thread */
                tid: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The metadata */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["FileStat"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "files.watch": {
        parameters: {
            query: {
                /** @description Path of the file or directory. */
                path: string;
                /** @description Watch all levels below a directory, not only its entries. */
                recursive?: boolean;
            };
            header?: never;
            path: {
                /** @description Id of the thread */
                tid: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A stream of server-sent events */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/event-stream": string;
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "files.write": {
        parameters: {
            query: {
                /** @description Path of the file. */
                path: string;
                /** @description Create missing parent directories. */
                create_dirs?: boolean;
            };
            header?: never;
            path: {
                /** @description Id of the thread */
                tid: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/octet-stream": components["schemas"]["Binary"];
            };
        };
        responses: {
            /** @description The file was replaced */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["WrittenFile"];
                };
            };
            /** @description The file was created */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["WrittenFile"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "threads.get_lease": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the thread */
                tid: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The lease */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["LeaseView"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "messages.list": {
        parameters: {
            query?: {
                /** @description Maximum number of items; 100 by default, 1000 at most. */
                limit?: number;
                /** @description The `next_cursor` of the previous page. */
                cursor?: string;
            };
            header?: never;
            path: {
                /** @description Id of the thread */
                tid: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page of messages */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["List_MessageView"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "messages.create": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the thread */
                tid: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NewMessage"];
            };
        };
        responses: {
            /** @description The message */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["MessageView"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "threads.pause": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the thread */
                tid: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The lease */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["LeaseView"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "threads.list_ports": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the thread */
                tid: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The ports, in ascending order */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["List_ListeningPort"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "threads.link_port": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the thread */
                tid: string;
                /** @description Number of the TCP port */
                port: number;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NewPortLink"];
            };
        };
        responses: {
            /** @description The link */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["PortLink"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "threads.resume": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the thread */
                tid: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The lease */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["LeaseView"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "sessions.get": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the thread */
                tid: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The session */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SessionView"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "sessions.close": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the thread */
                tid: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The closed session */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SessionView"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "sessions.touch": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the thread */
                tid: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The session */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SessionView"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "threads.get_terminal": {
        parameters: {
            query?: {
                /**
                 * @description `true` returns the values of variables whose names suggest a secret (`…KEY`, `…TOKEN`, `…PASSWORD`);
                 *     by default they are `***`.
                 */
                reveal?: boolean;
            };
            header?: never;
            path: {
                /** @description Id of the thread */
                tid: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The default terminal */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["DefaultTerminal"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "threads.list_terminals": {
        parameters: {
            query?: {
                /** @description Maximum number of items; 100 by default, 1000 at most. */
                limit?: number;
                /** @description The `next_cursor` of the previous page. */
                cursor?: string;
            };
            header?: never;
            path: {
                /** @description Id of the thread */
                tid: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page of terminals */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["List_TerminalView"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "threads.create_terminal": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the thread */
                tid: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["CreateTerminal"];
            };
        };
        responses: {
            /** @description The terminal */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["TerminalView"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "docs.page": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description An HTML page */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/html": unknown;
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "docs.style": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A CSS file */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/css": unknown;
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "docs.script": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A JavaScript file */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/javascript": unknown;
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "server.live": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The process is alive */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Liveness"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "server.sign_in": {
        parameters: {
            query: {
                /** @description The code of the sign-in link. */
                code: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Signed in; the cookie is set */
            303: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "server.metrics": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description All metrics */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/openmetrics-text": string;
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "server.ready": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The server is ready */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Readiness"];
                };
            };
            /** @description The server is not ready: `code` is `stopping` or `store_unavailable`, and `checks` has all checks */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description An error; `code` identifies it */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
}
