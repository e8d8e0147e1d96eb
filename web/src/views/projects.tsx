/** Projects: what each contains, and when it is deleted. */

import { get, list, path, send } from "../api/client.ts";
import { useResource } from "../api/resource.ts";
import type { Project } from "../api/types.ts";
import { go, threadAddress } from "../lib/router.ts";
import { bytes, day, plural, relative } from "../lib/time.ts";
import { type Answers, ask, attempt, toast } from "../ui/dialogs.tsx";
import { Icon } from "../ui/icons.tsx";
import { Ago, Badge, Button, Empty, Failure, Menu, useNow } from "../ui/parts.tsx";

/** The projects; an error of 404 means that this server has none. */
export function useProjects() {
  return useResource<Project[]>(
    "projects",
    () => list<Project>("/api/projects?limit=200"),
    (event) => ["project", "thread", "session"].some((noun) => event.name.startsWith(noun)),
  );
}

async function createProject({ prefix, description, tags = "" }: Answers): Promise<void> {
  const named = tags
    .split(",")
    .map((tag) => tag.trim())
    .filter((tag) => tag !== "");
  const project = await send<Project>("POST", "/api/projects", {
    prefix,
    ...(description && { description }),
    ...(named.length > 0 && { tags: named }),
  });
  const deletes = project.deletes_at && ` It is deleted on ${day(project.deletes_at)} unless it is used.`;
  toast(`Created ${project.project_id}.${deletes ?? ""}`);
}

export function ProjectsView() {
  const projects = useProjects();
  const create = async (): Promise<void> => {
    await ask({
      title: "New project",
      text: "Unused projects are deleted automatically. Pin a project to keep it.",
      action: "Create",
      fields: [
        { name: "prefix", label: "Prefix", hint: "lower-case letters, digits and dashes" },
        { name: "description", label: "Description", optional: true },
        { name: "tags", label: "Tags", hint: "separated by commas", optional: true },
      ],
      submit: createProject,
      failed: "Couldn't create the project.",
    });
    projects.refresh();
  };
  return (
    <main class="page" id="main" tabIndex={-1}>
      <header class="page-head">
        <h1>Projects</h1>
        <Button tone="main" onClick={create}>
          New project
        </Button>
      </header>
      {projects.error !== undefined && <Failure error={projects.error} retry={projects.refresh} />}
      {projects.value?.length === 0 && (
        <Empty title="No projects yet." command="stead project create demo">
          <p>A project keeps files and memories for several threads. Create one here, or run:</p>
        </Empty>
      )}
      <ul class="cards">
        {projects.value?.map((project) => (
          <ProjectCard key={project.project_id} project={project} refresh={projects.refresh} />
        ))}
      </ul>
    </main>
  );
}

const DEFAULT = "default-00000000";
/** A project that is deleted within this time gets a warning. */
const WARN_MS = 3 * 24 * 3600_000;

function ProjectCard({ project, refresh }: { project: Project; refresh: () => void }) {
  const now = useNow(60_000);
  const here = path("api", "projects", project.project_id);
  // Only the answer for one project has its disk use.
  const whole = useResource<Project>(
    `project ${project.project_id}`,
    () => get(here),
    (event) => event.project === project.project_id,
  );
  const { statistics } = project;
  const disk = whole.value?.statistics.disk_bytes;
  const due = project.deletes_at;
  const soon = project.warned_at !== null || (due !== null && Date.parse(due) - now < WARN_MS);
  // The project of threads without a project always exists.
  const permanent = project.project_id === DEFAULT;
  const description = permanent ? "Threads without a project" : project.description;
  const used = Date.parse(statistics.last_access) > 0;
  const act = async (verb: string, body?: object): Promise<void> => {
    await attempt(`Couldn't ${verb} the project.`, () => send("POST", `${here}/${verb}`, body));
    refresh();
  };
  const remove = async (): Promise<void> => {
    const yes = await ask({
      title: "Delete this project?",
      text: "Its threads are deleted now. Its workspace and memories stay in the trash for a few days.",
      action: "Delete",
      danger: true,
      type: project.project_id,
    });
    if (!yes) return;
    await attempt("Couldn't delete the project.", () => send("DELETE", here), "Project deleted.");
    refresh();
  };
  const newSession = async (): Promise<void> => {
    const made = await attempt("Couldn't create a session.", () =>
      send<{ thread_id: string }>("POST", `${here}/sessions`),
    );
    if (made) go(threadAddress(made.thread_id));
  };
  return (
    <li class="card project-card">
      <div class="card-head">
        <h2>
          <a
            href={`/ui/threads?${new URLSearchParams({ filter: project.project_id })}`}
            title="Show threads of this project"
          >
            {project.project_id}
          </a>
        </h2>
        {project.pinned && <Badge tone="good">pinned</Badge>}
      </div>
      {description && <p>{description}</p>}
      {project.tags.length > 0 && (
        <p class="tags">
          {project.tags.map((tag) => (
            <span key={tag} class="tag">
              {tag}
            </span>
          ))}
        </p>
      )}
      <p class="facts">
        <span>{plural(statistics.sessions, "session")}</span>
        <span>{plural(statistics.commands, "command")}</span>
        {disk !== undefined && <span>{bytes(disk)} on disk</span>}
        <span>
          {used ? (
            <>
              used <Ago time={statistics.last_access} />
            </>
          ) : (
            "never used"
          )}
        </span>
      </p>
      {due && !project.pinned && (
        <p class={soon ? "soon" : "quiet-text"}>
          {soon && "⚠ "}Deletes on {day(due)} ({relative(due, now)}) unless it is used
        </p>
      )}
      <div class="row-actions">
        <Button tone="main" onClick={newSession}>
          New session
        </Button>
        {!permanent && (
          <Button onClick={() => act(project.pinned ? "unpin" : "pin")}>
            {project.pinned ? "Unpin" : "Pin"}
          </Button>
        )}
        {!permanent && (
          <Menu
            label={`More actions for ${project.project_id}`}
            items={[
              { label: "Keep for 30 more days", run: () => act("extend", { days: 30 }) },
              { label: "Delete project…", tone: "danger", run: remove },
            ]}
          >
            <Icon name="more" />
          </Menu>
        )}
      </div>
    </li>
  );
}
