//! The handler of all MCP requests, for both lifecycles: with `initialize` and a session (2025-11-25 and before),
//! and stateless (2026-07-28).

use std::{collections::HashMap, sync::Arc};

use axum::Router;
use http::request::Parts;
use parking_lot::Mutex;
use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::*,
    service::{RequestContext, SubscriptionContext},
};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    command::CommandRecord,
    fixtures::Fixtures,
    native::{NativeApi, NativeProblem},
    resources::{self, ResourceName},
    screens,
    tools::{self, CATALOG, ToolCall, ToolError},
};

/// Most resources that one client may subscribe to.
const MAX_SUBSCRIPTIONS: usize = 32;

const INSTRUCTIONS: &str = "Stead runs commands in durable shells. The shell of a thread keeps its directory, \
    variables and background jobs between calls, and survives restarts. Use `exec` for commands, `type` and \
    `screen` for interactive programs, and the file tools for files in /workspace. A command that takes long \
    continues in the background: follow it with `command_output`.";

/// One client: a session, or a single stateless request.
pub(crate) struct McpServer {
    native: Router,
    stopping: CancellationToken,
    fixtures: Option<Arc<Fixtures>>,
    /// The subscriptions of a session by URI; dropping one ends it.
    subscriptions: Mutex<HashMap<String, DropGuard>>,
}

impl McpServer {
    pub(crate) fn new(
        native: Router,
        stopping: CancellationToken,
        fixtures: Option<Arc<Fixtures>>,
    ) -> McpServer {
        McpServer { native, stopping, fixtures, subscriptions: Mutex::default() }
    }

    fn native(&self, context: &RequestContext<RoleServer>) -> Result<NativeApi, ErrorData> {
        let caller = context.extensions.get::<Parts>();
        let caller = caller.ok_or_else(|| ErrorData::internal_error("no HTTP request", None))?;
        Ok(NativeApi::new(self.native.clone(), caller))
    }

    fn capabilities(&self) -> ServerCapabilities {
        let mut resources = ResourcesCapability::default();
        resources.subscribe = Some(true);
        let mut capabilities = ServerCapabilities::default();
        capabilities.tools = Some(ToolsCapability::default());
        capabilities.resources = Some(resources);
        capabilities.extensions =
            Some([(TASKS_EXTENSION_ID.to_owned(), JsonObject::new())].into_iter().collect());
        match &self.fixtures {
            Some(fixtures) => fixtures.capabilities(capabilities),
            None => capabilities,
        }
    }
}

/// Returns the error for a task id; only an unknown task is the client's fault.
fn task_error(error: ToolError) -> ErrorData {
    match error {
        ToolError::Native(NativeProblem { status, detail, .. }) if status.is_client_error() => {
            ErrorData::invalid_params(format!("no such task: {detail}"), None)
        }
        ToolError::Native(_) | ToolError::Arguments(_) | ToolError::Failed(_) => {
            ErrorData::internal_error(error.to_string(), None)
        }
    }
}

#[expect(deprecated, reason = "clients of 2025-11-25 subscribe and set log levels in these ways")]
impl ServerHandler for McpServer {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(self.capabilities())
            .with_server_info(
                Implementation::new("stead", env!("CARGO_PKG_VERSION")).with_title("Stead"),
            )
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let mut tools: Vec<Tool> = CATALOG.iter().map(|entry| entry.tool.clone()).collect();
        if let Some(fixtures) = &self.fixtures {
            tools.extend(fixtures.tools());
        }
        Ok(ListToolsResult { tools, ..ListToolsResult::default() })
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        let own = tools::find(name).map(|entry| entry.tool.clone());
        own.or_else(|| self.fixtures.as_ref()?.tools().into_iter().find(|tool| tool.name == name))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if let Some(entry) = tools::find(&request.name) {
            let native = self.native(&context)?;
            let call = ToolCall { native, context, stopping: self.stopping.clone() };
            return Ok(entry.call(call, request.arguments.unwrap_or_default()).await);
        }
        match &self.fixtures {
            Some(fixtures) => fixtures.call(request, context).await,
            None => Err(ErrorData::invalid_params(format!("unknown tool: {}", request.name), None)),
        }
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        let native = self.native(&context)?;
        let record = CommandRecord::read(&native, &request.task_id).await;
        let record = record.map_err(|problem| task_error(problem.into()))?;
        Ok(GetTaskResult::new(record.detailed_task(&native).await.map_err(task_error)?))
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let native = self.native(&context)?;
        let record = CommandRecord::read(&native, &request.task_id).await;
        let record = record.map_err(|problem| task_error(problem.into()))?;
        if record.is_running() {
            tools::cancel(&native, &request.task_id).await.map_err(task_error)?;
        }
        Ok(())
    }

    /// A command requests no input of the client; `type` and `command_input` are tools.
    async fn update_task(
        &self,
        request: UpdateTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let native = self.native(&context)?;
        let record = CommandRecord::read(&native, &request.task_id).await;
        record.map(drop).map_err(|problem| task_error(problem.into()))
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let native = self.native(&context)?;
        let cursor = request.and_then(|request| request.cursor);
        let is_first = cursor.is_none();
        let mut page = resources::list(&native, cursor).await?;
        if let Some(fixtures) = self.fixtures.as_ref().filter(|_| is_first) {
            page.resources.extend(fixtures.resources());
        }
        Ok(page)
    }

    async fn list_resource_templates(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let mut page = resources::templates();
        if let Some(fixtures) = &self.fixtures {
            page.resource_templates.extend(fixtures.resource_templates());
        }
        Ok(page)
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let fixture = self.fixtures.as_ref().and_then(|fixtures| fixtures.read(&request.uri));
        if let Some(contents) = fixture {
            return Ok(ReadResourceResult::new(vec![contents]).into());
        }
        Ok(resources::read(&self.native(&context)?, &request.uri).await?.into())
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        let mut accepted = SubscriptionFilter::new();
        let uris = requested.resource_subscriptions.iter().flatten();
        let screens = uris
            .filter(|uri| matches!(ResourceName::parse(uri), Some(ResourceName::Screen { .. })));
        accepted.resource_subscriptions = Some(screens.take(MAX_SUBSCRIPTIONS).cloned().collect());
        if self.fixtures.is_some() {
            accepted.tools_list_changed = requested.tools_list_changed;
            accepted.prompts_list_changed = requested.prompts_list_changed;
        }
        Some(accepted)
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let native = self.native(context.request_context())?;
        let uris = context.accepted().resource_subscriptions.clone().unwrap_or_default();
        let screens = uris.into_iter().map(|uri| {
            let (native, sink) = (native.clone(), context.sink().clone());
            let updated = move |uri: String| {
                let sink = sink.clone();
                async move { sink.notify_resource_updated(uri).await.is_ok() }
            };
            screens::watch(native, uri, updated)
        });
        let screens = futures_util::future::join_all(screens);
        let fixtures = async {
            match &self.fixtures {
                Some(fixtures) => fixtures.notify(context.sink()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = context.cancelled() => {}
            () = self.stopping.cancelled() => {}
            () = fixtures => {}
            () = async { drop(screens.await); std::future::pending().await } => {}
        }
        Ok(())
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        if self.fixtures.as_ref().is_some_and(|fixtures| fixtures.has_resource(&request.uri)) {
            return Ok(());
        }
        if !matches!(ResourceName::parse(&request.uri), Some(ResourceName::Screen { .. })) {
            return Err(resources::not_found(&request.uri, "only screens can be subscribed to"));
        }
        let ended = CancellationToken::new();
        {
            let mut subscriptions = self.subscriptions.lock();
            if subscriptions.len() >= MAX_SUBSCRIPTIONS {
                let message = format!("at most {MAX_SUBSCRIPTIONS} subscriptions");
                return Err(ErrorData::invalid_params(message, None));
            }
            subscriptions.insert(request.uri.clone(), ended.clone().drop_guard());
        }
        let (native, peer) = (self.native(&context)?, context.peer.clone());
        let updated = move |uri: String| {
            let peer = peer.clone();
            let note = ResourceUpdatedNotificationParam::new(uri);
            async move { peer.notify_resource_updated(note).await.is_ok() }
        };
        let stopping = self.stopping.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = ended.cancelled() => {}
                () = stopping.cancelled() => {}
                () = screens::watch(native, request.uri, updated) => {}
            }
        });
        Ok(())
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.subscriptions.lock().remove(&request.uri);
        Ok(())
    }

    async fn list_prompts(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        match &self.fixtures {
            Some(fixtures) => Ok(ListPromptsResult {
                prompts: fixtures.prompts(),
                ..ListPromptsResult::default()
            }),
            None => Err(ErrorData::method_not_found::<ListPromptsRequestMethod>()),
        }
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        match &self.fixtures {
            Some(fixtures) => fixtures.prompt(&request),
            None => Err(ErrorData::method_not_found::<GetPromptRequestMethod>()),
        }
    }

    async fn complete(
        &self,
        _request: CompleteRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        match &self.fixtures {
            Some(_) => Ok(CompleteResult::default()),
            None => Err(ErrorData::method_not_found::<CompleteRequestMethod>()),
        }
    }

    async fn set_level(
        &self,
        _request: SetLevelRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let is_modern = context
            .protocol_version()
            .is_some_and(|version| version.as_str() >= ProtocolVersion::V_2026_07_28.as_str());
        match &self.fixtures {
            Some(_) if !is_modern => Ok(()),
            Some(_) | None => Err(ErrorData::method_not_found::<SetLevelRequestMethod>()),
        }
    }
}
