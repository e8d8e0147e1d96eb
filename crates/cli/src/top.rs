//! `stead top`: a live table of what runs, and what it uses.

use std::{
    collections::HashMap,
    io::{self, IsTerminal, Read, Write},
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::Args;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{
    client::{ApiClient, ServerArgs},
    raw,
    show::{self, PrintArgs, plain},
};

/// Maximum number of threads in the table.
const MAX_ITEMS: usize = 1000;
/// The time between two samples of a table that is printed once.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);
const CTRL_C: u8 = 3;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  stead top\n  stead top --once --json\n\n\
    Shows threads and sandboxes that have an instance or run a command; `q` quits. If standard output is\n\
    not a terminal, the table is printed once. With `--json` and without `--once`, a JSON array is printed at\n\
    each interval, one per line, until the command is interrupted. CPU is in percent of one CPU.")]
pub(super) struct TopArgs {
    /// Print the table once and exit
    #[arg(long)]
    once: bool,
    /// Include threads without an instance
    #[arg(short, long)]
    all: bool,
    /// Time between updates
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = config::parse_duration)]
    interval: Duration,
    #[command(flatten)]
    form: PrintArgs,
    #[command(flatten)]
    target: ServerArgs,
}

/// The threads of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ThreadSelection {
    All,
    /// Those that have an instance or run a command.
    InUse,
}

impl TopArgs {
    fn selection(&self) -> ThreadSelection {
        if self.all { ThreadSelection::All } else { ThreadSelection::InUse }
    }
}

pub(super) async fn top(args: TopArgs) -> anyhow::Result<ExitCode> {
    let client = args.target.client()?;
    let mut before = Sample::read(&client).await?;
    if !args.once && !args.form.json && io::stdout().is_terminal() {
        watch(&client, before, &args).await?;
        return Ok(ExitCode::SUCCESS);
    }
    loop {
        let wait = if args.once { SAMPLE_INTERVAL } else { args.interval.max(SAMPLE_INTERVAL) };
        tokio::time::sleep(wait).await;
        let sample = Sample::read(&client).await?;
        let rows = sample.rows(&before, args.selection());
        match args.form.json {
            true => show::json_line(&Value::from(rows))?,
            false => show::line(&show::table(&cells(&rows), usize::MAX))?,
        }
        if args.once || !args.form.json {
            return Ok(ExitCode::SUCCESS);
        }
        before = sample;
    }
}

/// Redraws the table until a key ends it. A server that does not answer is asked again.
async fn watch(client: &ApiClient, mut before: Sample, args: &TopArgs) -> anyhow::Result<()> {
    let _raw = raw::RawMode::enter()?;
    let mut keys = keys();
    let mut rows = before.rows(&before, args.selection());
    let mut state = None;
    // The alternate screen, without a cursor; leaving raw mode restores both.
    write!(io::stdout(), "\x1b[?1049h\x1b[?25l")?;
    loop {
        draw(&rows, state.as_deref())?;
        let quit = tokio::select! {
            key = keys.recv() => matches!(key, Some(b'q' | b'Q' | CTRL_C)),
            _ = tokio::signal::ctrl_c() => true,
            () = tokio::time::sleep(args.interval) => false,
        };
        if quit {
            return Ok(());
        }
        match Sample::read(client).await {
            Ok(sample) => {
                rows = sample.rows(&before, args.selection());
                before = sample;
                state = None;
            }
            Err(error) => state = Some(format!("{error:#}")),
        }
    }
}

/// Reads keys on a thread of their own, which ends with the process.
fn keys() -> mpsc::Receiver<u8> {
    let (sender, receiver) = mpsc::channel(16);
    std::thread::spawn(move || {
        for key in io::stdin().lock().bytes().map_while(Result::ok) {
            if sender.blocking_send(key).is_err() {
                return;
            }
        }
        // Without a keyboard, only a signal ends the table.
        loop {
            std::thread::park();
        }
    });
    receiver
}

fn draw(rows: &[Value], state: Option<&str>) -> io::Result<()> {
    let (columns, lines) = raw::size().unwrap_or((80, 24));
    let title = match state {
        Some(error) => format!("stead top: {}", plain(&error.into())),
        None => title(rows),
    };
    let table = show::table(&cells(rows), usize::from(columns));
    let mut out = io::stdout().lock();
    write!(out, "\x1b[H")?;
    let text = [title.as_str(), ""].into_iter().chain(table.lines());
    let mut ends = "";
    for line in text.take(usize::from(lines)) {
        write!(out, "{ends}{}\x1b[K", show::start_of(line, usize::from(columns)))?;
        ends = "\r\n";
    }
    write!(out, "\x1b[J")?;
    out.flush()
}

/// Counts the rows with an instance, among all rows if there are others, and those that run a command.
fn title(rows: &[Value]) -> String {
    let running = rows.iter().filter(|row| !row["command"].is_null()).count();
    let instances = match rows.iter().filter(|row| row["state"] != "none").count() {
        all if all == rows.len() => all.to_string(),
        some => format!("{some} of {}", rows.len()),
    };
    format!("{instances} with an instance, {running} running a command · q quits")
}

/// What the server reported at one time.
struct Sample {
    at: Instant,
    threads: Vec<Value>,
    /// The instances by lease.
    instances: HashMap<String, Value>,
    /// The names of sandboxes by thread.
    names: HashMap<String, Value>,
}

impl Sample {
    async fn read(client: &ApiClient) -> anyhow::Result<Sample> {
        let threads = client.list("/api/threads", MAX_ITEMS).await?;
        let leases = client.list("/api/leases", MAX_ITEMS).await?;
        let sandboxes = client.list("/api/sandboxes", MAX_ITEMS).await?;
        Ok(Sample::new(threads, leases, sandboxes))
    }

    fn new(threads: Vec<Value>, leases: Vec<Value>, sandboxes: Vec<Value>) -> Sample {
        let by = |items: Vec<Value>, key: &str, field: &str| {
            let pairs = items
                .into_iter()
                .filter_map(|mut item| Some((item[key].as_str()?.to_owned(), item[field].take())));
            pairs.collect()
        };
        let instances = by(leases, "lease_id", "instance");
        Sample { at: Instant::now(), threads, instances, names: by(sandboxes, "thread_id", "name") }
    }

    fn metric(&self, thread: &Value, pointer: &str) -> Value {
        let instance = thread["lease_id"].as_str().and_then(|lease| self.instances.get(lease));
        instance.and_then(|it| it.pointer(pointer)).cloned().unwrap_or_default()
    }

    /// The CPU time per time since an earlier sample, in percent; null if it is not known.
    fn cpu(&self, before: &Sample, thread: &Value) -> Value {
        let same = |pointer| self.metric(thread, pointer) == before.metric(thread, pointer);
        let time = |sample: &Sample| sample.metric(thread, "/metrics/cpu_us").as_u64();
        let elapsed = self.at.duration_since(before.at).as_micros();
        match (time(self), time(before)) {
            (Some(now), Some(then)) if elapsed > 0 && same("/instance_id") => {
                let used = u128::from(now.saturating_sub(then));
                json!(u64::try_from(used * 100 / elapsed).unwrap_or(u64::MAX))
            }
            _ => Value::Null,
        }
    }

    /// One row for each thread that has an instance or runs a command: those that run first, then by CPU.
    fn rows(&self, before: &Sample, selection: ThreadSelection) -> Vec<Value> {
        let mut rows: Vec<Value> = Vec::new();
        for thread in &self.threads {
            let last = &thread["last_command"];
            let runs = last["running"] == true;
            let state = &thread["sandbox"]["status"];
            if selection == ThreadSelection::InUse && !runs && state == "none" {
                continue;
            }
            let id = thread["thread_id"].as_str().unwrap_or_default();
            rows.push(json!({
                "thread_id": id,
                "sandbox": self.names.get(id),
                "state": state,
                "waiting_for_input": runs && last["waiting_for_input"] == true,
                "command_id": runs.then_some(&last["command_id"]),
                "command": runs.then_some(&last["command"]),
                "started_at": runs.then_some(&last["started_at"]),
                "cpu_percent": self.cpu(before, thread),
                "memory_bytes": self.metric(thread, "/metrics/memory_bytes"),
                "memory_limit_bytes": self.metric(thread, "/metrics/limits/memory_bytes"),
                "disk_bytes": self.metric(thread, "/metrics/disk_bytes"),
                "disk_limit_bytes": self.metric(thread, "/metrics/limits/disk_bytes"),
                "processes": self.metric(thread, "/metrics/processes"),
            }));
        }
        rows.sort_by_key(|row| {
            let cpu = row["cpu_percent"].as_u64().unwrap_or(0);
            (row["command"].is_null(), u64::MAX - cpu, row["thread_id"].to_string())
        });
        rows
    }
}

/// Formats rows for people, below their titles.
fn cells(rows: &[Value]) -> Vec<Vec<String>> {
    let titles = ["THREAD", "STATE", "CPU", "MEMORY", "DISK", "PIDS", "FOR", "COMMAND"];
    let mut table = vec![titles.map(str::to_owned).to_vec()];
    for row in rows {
        let name = if row["sandbox"].is_string() { &row["sandbox"] } else { &row["thread_id"] };
        let cpu = row["cpu_percent"].as_u64();
        table.push(vec![
            plain(name),
            if row["waiting_for_input"] == true { "waiting".into() } else { plain(&row["state"]) },
            cpu.map_or_else(|| "-".into(), |percent| format!("{percent} %")),
            used(&row["memory_bytes"], &row["memory_limit_bytes"]),
            used(&row["disk_bytes"], &row["disk_limit_bytes"]),
            plain(&row["processes"]),
            elapsed(&row["started_at"], Timestamp::now()),
            plain(&row["command"]),
        ]);
    }
    table
}

/// Formats what is used, and the limit if there is one.
fn used(bytes: &Value, limit: &Value) -> String {
    match (bytes.as_u64(), limit.as_u64()) {
        (Some(bytes), Some(limit)) => format!("{} / {}", size(bytes), size(limit)),
        (Some(bytes), None) => size(bytes),
        (None, _) => "-".into(),
    }
}

fn size(bytes: u64) -> String {
    let (mut whole, mut unit) = (bytes, "B");
    let mut tenths = 0;
    for next in ["KiB", "MiB", "GiB", "TiB"] {
        if whole < 1024 {
            break;
        }
        (whole, tenths, unit) = (whole / 1024, whole % 1024 * 10 / 1024, next);
    }
    if tenths > 0 && whole < 10 {
        format!("{whole}.{tenths} {unit}")
    } else {
        format!("{whole} {unit}")
    }
}

/// Formats the time since a command began.
fn elapsed(since: &Value, now: Timestamp) -> String {
    let Some(began) = since.as_str().and_then(|text| text.parse::<Timestamp>().ok()) else {
        return "-".into();
    };
    let seconds = (now.as_second() - began.as_second()).max(0);
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds}s"),
        (0, minutes, seconds) => format!("{minutes}m {seconds:02}s"),
        (hours, minutes, _) => format!("{hours}h {minutes:02}m"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(id: &str, status: &str, last: Value) -> Value {
        let sandbox = json!({"type": "local", "status": status});
        json!({"thread_id": id, "lease_id": format!("of {id}"), "sandbox": sandbox, "last_command": last})
    }

    fn lease(id: &str, instance: &str, cpu_us: u64) -> Value {
        let limits = json!({"memory_bytes": 1 << 30});
        let metrics = json!({"cpu_us": cpu_us, "memory_bytes": 3 << 20, "disk_bytes": 1536, "processes": 2, "limits": limits});
        let instance = json!({"instance_id": instance, "metrics": metrics});
        json!({"lease_id": format!("of {id}"), "instance": instance})
    }

    #[test]
    fn what_runs_is_first_and_what_has_no_instance_is_left_out() {
        let began = "2026-01-01T00:00:00Z";
        let make = json!({"command_id": "cmd_1", "command": "make\ntest", "running": true,
            "started_at": began, "waiting_for_input": false});
        let threads = vec![
            thread("none", "none", Value::Null),
            thread("idle", "running", json!({"command": "ls", "running": false})),
            thread("sb_1", "running", make),
        ];
        let sandboxes = vec![json!({"thread_id": "sb_1", "name": "build"})];
        let sample = |cpu_us| {
            let leases = vec![lease("idle", "i", 5_000_000), lease("sb_1", "b", cpu_us)];
            Sample::new(threads.clone(), leases, sandboxes.clone())
        };
        let before = sample(0);
        let mut now = sample(1_500_000);
        now.at = before.at + Duration::from_secs(1);
        let rows = now.rows(&before, ThreadSelection::InUse);
        let mut table = cells(&rows);
        assert_eq!(rows[0]["cpu_percent"], 150);
        assert_eq!(rows[1]["command"], Value::Null);
        // The elapsed time depends on the clock.
        table[1][6] = elapsed(&json!(began), "2026-01-01T01:02:03Z".parse().unwrap());
        assert_eq!(
            table[1..],
            [
                [
                    "build",
                    "running",
                    "150 %",
                    "3 MiB / 1 GiB",
                    "1.5 KiB",
                    "2",
                    "1h 02m",
                    "make\\ntest"
                ],
                ["idle", "running", "0 %", "3 MiB / 1 GiB", "1.5 KiB", "2", "-", "-"],
            ]
        );
        assert_eq!(title(&rows), "2 with an instance, 1 running a command · q quits");
        let all = title(&now.rows(&before, ThreadSelection::All));
        assert_eq!(all, "2 of 3 with an instance, 1 running a command · q quits");
    }

    #[test]
    fn an_instance_that_was_replaced_has_no_cpu_yet() {
        let threads = vec![thread("a", "running", Value::Null)];
        let before = Sample::new(threads.clone(), vec![lease("a", "first", 9)], vec![]);
        let mut now = Sample::new(threads, vec![lease("a", "second", 10)], vec![]);
        now.at = before.at + Duration::from_secs(1);
        assert_eq!(now.rows(&before, ThreadSelection::InUse)[0]["cpu_percent"], Value::Null);
    }
}
