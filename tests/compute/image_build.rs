//! Images built from Dockerfiles.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Output,
};

use machine::namespace::Check;
use serde_json::{Value, json};

use super::{containers::small_root, namespace};
use harness::{Client, Home, Server, engines, run, wait_long};

const DOCKERFILE: &str = "\
FROM base
ARG VERSION=1
ENV APP=/srv/app VERSION=$VERSION
WORKDIR $APP
COPY --chown=7:8 --chmod=640 src/ .
COPY *.txt /texts/
ADD bundle.tar /unpacked
RUN echo version $VERSION in $PWD of $BASE > result && \\
    cat /etc/mark >> result
RUN echo 'app:x:7:8::/tmp:/bin/sh' >> /etc/passwd; chmod 1777 /tmp
USER app
RUN id -u > /tmp/who && echo $HOME >> /tmp/who
LABEL team=tools
EXPOSE 80
ENTRYPOINT [\"serve\"]
";

fn stead(home: &Home, arguments: &[&str]) -> Output {
    run(
        arguments,
        &[("STEAD_HOME", home.path().to_str().unwrap()), ("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")],
    )
}

/// Imports an image `base` with a configuration.
fn import_base(home: &Home) {
    let image = home.path().join("images/base");
    small_root(&image.join("rootfs"));
    for name in ["chmod", "echo", "id", "ln", "rm", "sleep", "stat"] {
        symlink("busybox", image.join("rootfs/bin").join(name)).unwrap();
    }
    let config =
        json!({"architecture": "any", "config": {"Env": ["BASE=the base"], "Cmd": ["sh"]}});
    fs::write(image.join("config.json"), config.to_string()).unwrap();
}

/// Creates a directory with a Dockerfile and the files that [`DOCKERFILE`] names.
fn context(home: &Home, dockerfile: &str) -> PathBuf {
    let dir = home.path().join("context");
    for (path, text) in [
        ("src/deep/code", "code\n"),
        ("src/ignored", "secret\n"),
        ("a.txt", "a\n"),
        ("b.txt", "b\n"),
        (".dockerignore", "**/ignored\n"),
        ("Dockerfile", dockerfile),
    ] {
        fs::create_dir_all(dir.join(path).parent().unwrap()).unwrap();
        fs::write(dir.join(path), text).unwrap();
    }
    let mut bundle = tar::Builder::new(fs::File::create(dir.join("bundle.tar")).unwrap());
    bundle.append_path_with_name(dir.join("a.txt"), "from-bundle").unwrap();
    bundle.finish().unwrap();
    dir
}

fn build(home: &Home, directory: &Path, more: &[&str]) -> (bool, String) {
    let arguments = [&["image", "build", "-t", "tools"], more, &[directory.to_str().unwrap()]];
    let output = stead(home, &arguments.concat());
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

fn open(client: &Client, thread: &str) -> impl Fn(&str) -> String {
    client
        .put(&format!("/api/threads/{thread}"), json!({"sandbox": {"image": "tools"}}))
        .expect_success();
    let opened = client.post(&format!("/api/threads/{thread}/terminals"), json!({"shell": "sh"}));
    let target =
        format!("/api/terminals/{}/exec", opened.expect(201)["terminal_id"].as_str().unwrap());
    let client = client.clone();
    move |command| {
        let ran = client.post(&target, json!({"command": command})).expect(200);
        ran["stdout"].as_str().unwrap_or_else(|| panic!("{ran}")).to_owned()
    }
}

/// The names in a directory of a home that are not hidden.
fn names(home: &Home, path: &str) -> Vec<String> {
    let listed = fs::read_dir(home.path().join(path)).into_iter().flatten().flatten();
    let names = listed.map(|entry| entry.file_name().into_string().unwrap());
    names.filter(|name| !name.starts_with(".lock")).collect()
}

/// Waits until a build has left nothing but its image and its log.
fn wait_for_removal(home: &Home, client: &Client, leases: usize) {
    wait_long("the leftovers of builds to be removed", || {
        let found = client.get("/api/leases").expect(200)["items"].as_array().unwrap().len();
        let dirs = ["snapshots", "container-snapshots", "builds/files"];
        let left: Vec<_> = dirs.iter().flat_map(|dir| names(home, dir)).collect();
        let hidden =
            names(home, "pulled-images/roots").into_iter().filter(|it| it.starts_with('.'));
        let left: Vec<String> = left.into_iter().chain(hidden).collect();
        if found == leases && left.is_empty() { Ok(()) } else { Err((found, left)) }
    });
}

fn check_build(home: &Home, client: &Client) {
    let directory = context(home, DOCKERFILE);
    let (built, text) = build(home, &directory, &["--build-arg", "VERSION=2"]);
    assert!(built, "{text}");
    for line in [
        "FROM base",
        "[1/10] ARG VERSION",
        "[7/10] RUN echo version",
        "docker.io/library/tools:latest",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    let run = open(client, "first");
    assert_eq!(
        run("pwd; cat result"),
        "/srv/app\nversion 2 in /srv/app of the base\nof the image\n"
    );
    assert_eq!(run("cat /tmp/who; echo $APP $VERSION"), "7\n/tmp\n/srv/app 2\n");
    assert_eq!(
        run("stat -c '%u %g %a' deep/code; ls; cat /texts/*"),
        "7 8 640\ndeep\nresult\na\nb\n"
    );
    assert_eq!(
        run("cat /unpacked/from-bundle; ls /var/tmp /workspace"),
        "a\n/var/tmp:\n\n/workspace:\n"
    );
    let listed: Value =
        serde_json::from_slice(&stead(home, &["image", "ls", "--json"]).stdout).unwrap();
    assert_eq!(listed[1]["name"], "docker.io/library/tools:latest", "{listed}");
    let root = names(home, "pulled-images/roots").remove(0);
    let config =
        fs::read(home.path().join("pulled-images/roots").join(root).join("config.json")).unwrap();
    let config: Value = serde_json::from_slice(&config).unwrap();
    let expected = json!({
        "Env": ["APP=/srv/app", "BASE=the base", "VERSION=2"], "WorkingDir": "/srv/app", "User": "app",
        "Labels": {"team": "tools"}, "ExposedPorts": {"80/tcp": {}}, "Entrypoint": ["serve"], "Cmd": null,
    });
    assert_eq!(config["config"], expected);
    wait_for_removal(home, client, 1);

    // A build that fails leaves the image as it was, and says where it failed.
    context(home, "FROM tools\n\nRUN echo broken > result; echo reason >&2; exit 3\n");
    let (built, text) = build(home, &directory, &[]);
    assert!(
        !built && text.contains("line 3: RUN echo broken") && text.contains("exit code 3: reason"),
        "{text}"
    );
    context(home, "FROM tools\nVOLUME /x\n");
    let (built, text) = build(home, &directory, &[]);
    assert!(!built && text.contains("line 2: VOLUME is not supported"), "{text}");
    context(home, "FROM tools\nRUN true\nFROM tools\nCOPY --from=0 /absent /\n");
    let (built, text) = build(home, &directory, &[]);
    assert!(
        !built && text.contains("line 4: COPY /absent /: exit code 1: absent is not in the stage"),
        "{text}"
    );
    context(home, "FROM tools\nCOPY absent /\n");
    let (built, text) = build(home, &directory, &[]);
    assert!(
        !built && text.contains("line 2: COPY absent /: exit code 1: absent is not among"),
        "{text}"
    );
    context(home, "FROM tools\nUSER who\nRUN id\n");
    let (built, text) = build(home, &directory, &[]);
    assert!(!built && text.contains("user who is not in /etc/passwd"), "{text}");
    assert_eq!(
        open(client, "second")("cat result"),
        "version 2 in /srv/app of the base\nof the image\n"
    );

    // A build that succeeds replaces the image; sandboxes keep theirs.
    context(home, "FROM tools\nUSER root\nRUN echo second > result && rm -r /texts\n");
    let (built, text) = build(home, &directory, &[]);
    assert!(built, "{text}");
    assert_eq!(open(client, "third")("cat result; ls -d /texts"), "second\n");
    assert_eq!(run("cat /texts/a.txt"), "a\n");
    wait_for_removal(home, client, 3);
    let builds = client.get("/api/images/builds").expect(200);
    let statuses: Vec<_> =
        builds["items"].as_array().unwrap().iter().map(|it| &it["status"]).collect();
    assert_eq!(statuses, ["succeeded", "failed", "failed", "failed", "failed", "succeeded"]);
    for thread in ["first", "second", "third"] {
        client.delete(&format!("/api/threads/{thread}")).expect_success();
    }
}

const SETTINGS: [&str; 8] = [
    "--set",
    "sandbox.warm=0",
    "--set",
    "sandbox.egress=none",
    "--set",
    "sandbox.disk=64m",
    "--set",
    "image.cache=0",
];

/// A home with an image `base`; none where there are no namespace sandboxes.
fn home_with_base() -> Option<Home> {
    let home = Home::new();
    let missing = Check::inspect(&namespace(home.path())).missing();
    if !missing.is_empty() {
        eprintln!("skipped: no namespace sandboxes on this machine: {}", missing.join("; "));
        return None;
    }
    import_base(&home);
    Some(home)
}

fn start(home: &Home) -> Server {
    Server::start_with(home, &[&["--provider", "namespace"], &SETTINGS[..]].concat())
}

#[test]
fn an_image_is_built_from_a_dockerfile_and_replaced_only_by_a_build_that_succeeds() {
    let Some(home) = home_with_base() else { return };
    let server = start(&home);
    check_build(&home, &server.client());
}

/// The last stage has the result of the others, and nothing else of them.
const STAGES: &str = "\
ARG GREETING=hello
FROM base AS common
ARG GREETING
ENV LANGUAGE=en
RUN echo $GREETING > /greeting
FROM base
RUN exit 9
FROM common AS make
WORKDIR /src
COPY src/ .
RUN echo made in $LANGUAGE > result && ln -s result latest && chmod 700 result && cat deep/code >> result
FROM common
COPY --from=make --chmod=750 /src/latest /opt/
COPY --from=make /src/deep /opt/deep
COPY --from=tools /etc/mar? /opt/
";

#[test]
fn an_image_has_what_its_last_stage_copies_from_others() {
    let Some(home) = home_with_base() else { return };
    let server = start(&home);
    let client = server.client();
    let directory = context(&home, "FROM base\nRUN echo of tools > /etc/mark\n");
    let (built, text) = build(&home, &directory, &[]);
    assert!(built, "{text}");
    context(&home, STAGES);
    let (built, text) = build(&home, &directory, &["--build-arg", "GREETING=welcome"]);
    assert!(built, "{text}");
    for line in ["stage make", "stage tools", "[3/6] RUN echo $GREETING", "COPY /src/latest /opt/"]
    {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert!(!text.contains("exit 9"), "a stage that is not needed was built: {text}");
    let run = open(&client, "staged");
    assert_eq!(
        run("cat /greeting; echo $LANGUAGE; ls /opt /src 2>&1"),
        "welcome\nen\nls: /src: No such file or directory\n/opt:\ndeep\nlatest\nmark\n"
    );
    assert_eq!(
        run("cat /opt/latest /opt/deep/code /opt/mark; stat -c '%u %a %F' /opt/latest"),
        "made in en\ncode\ncode\nof tools\n0 750 regular file\n"
    );
    assert_eq!(run("ls /var/tmp"), "");
    wait_for_removal(&home, &client, 1);
}

#[test]
fn a_server_whose_default_is_containers_builds_images_for_them() {
    for (_, engine) in engines() {
        let home = Home::new();
        import_base(&home);
        let host = format!("docker.host={}", engine.address());
        let arguments = [&["--provider", "docker", "--set", &host], &SETTINGS[..]].concat();
        let server = Server::start_with(&home, &arguments);
        let client = server.client();
        let dockerfile =
            "FROM base\nENV APP=/srv\nWORKDIR $APP\nCOPY src/ .\nRUN cat /etc/mark > result\n";
        let (built, text) = build(&home, &context(&home, dockerfile), &[]);
        assert!(built, "{text}");
        let found = open(&client, "first")("pwd; ls; cat deep/code result; echo $BASE $APP");
        assert_eq!(found, "/srv\ndeep\nresult\ncode\nof the image\nthe base /srv\n");
        client.delete("/api/threads/first").expect_success();
        wait_for_removal(&home, &client, 0);
        wait_long("the containers to be removed", || {
            let left = engine.containers(home.path());
            if left.is_empty() { Ok(()) } else { Err(left) }
        });
    }
}

#[test]
fn a_build_whose_server_was_killed_leaves_nothing() {
    let Some(home) = home_with_base() else { return };
    let server = start(&home);
    let client = server.client();
    let mut archive = tar::Builder::new(Vec::new());
    let text = "FROM base\nRUN echo half > /half; sleep 600\n";
    let mut header = tar::Header::new_gnu();
    header.set_size(text.len() as u64);
    archive.append_data(&mut header, "Dockerfile", text.as_bytes()).unwrap();
    let started = client
        .request("POST", "/api/images/builds?name=tools")
        .header("content-type", "application/x-tar")
        .body(&archive.into_inner().unwrap())
        .send()
        .expect(201);
    let target = format!("/api/images/builds/{}", started["build_id"].as_str().unwrap());
    let mut events = client.request("GET", &format!("{target}/log")).events();
    while !events.next().expect("an event").json()["text"]
        .as_str()
        .unwrap_or_default()
        .starts_with("[1/1]")
    {}
    drop(events);
    server.kill();
    // What a copy leaves that was killed.
    let roots = home.path().join("pulled-images/roots");
    fs::create_dir_all(roots.join(".part-0123456789abcdef/rootfs")).unwrap();
    let server = start(&home);
    let client = server.client();
    wait_long("the build to be reported as failed", || {
        let build = client.get(&target).expect(200);
        if build["status"] == "failed" { Ok(()) } else { Err(build) }
    });
    wait_for_removal(&home, &client, 0);
    assert_eq!(names(&home, "pulled-images/names"), [""; 0]);
    let directory = context(&home, "FROM base\nRUN echo whole > /whole\n");
    let (built, text) = build(&home, &directory, &[]);
    assert!(built, "{text}");
    assert_eq!(open(&client, "after")("cat /whole"), "whole\n");
}

#[test]
fn a_server_killed_while_a_build_is_copied_leaves_nothing_half() {
    let Some(home) = home_with_base() else { return };
    // Large enough that the copy is met half-way.
    let base = home.path().join("images/base/rootfs");
    fs::write(base.join("large"), vec![7; 48 << 20]).unwrap();
    fs::create_dir(base.join("many")).unwrap();
    for number in 0..2000 {
        fs::write(base.join("many").join(number.to_string()), "x").unwrap();
    }
    let server = start(&home);
    let directory = context(&home, "FROM base\nRUN echo one > /which\n");
    let (built, text) = build(&home, &directory, &[]);
    assert!(built, "{text}");
    context(&home, "FROM base\nRUN echo two > /which\n");
    let output = std::thread::scope(|scope| {
        let building = scope.spawn(|| build(&home, &directory, &[]));
        let roots = home.path().join("pulled-images/roots");
        wait_long("the copy to be half done", || {
            let parts = names(&home, "pulled-images/roots").into_iter();
            let mut parts = parts.filter(|name| name.starts_with('.'));
            match parts.any(|name| roots.join(name).join("rootfs/large").exists()) {
                true => Ok(()),
                false => Err(names(&home, "pulled-images/roots")),
            }
        });
        server.kill();
        building.join().unwrap()
    });
    assert!(!output.0, "{}", output.1);
    let server = start(&home);
    let client = server.client();
    wait_for_removal(&home, &client, 0);
    // The image is the one before the build, and whole.
    let run = open(&client, "after");
    assert_eq!(run("cat /which; set -- /many/*; echo $#"), "one\n2000\n");
    client.delete("/api/threads/after").expect_success();
    let (built, text) = build(&home, &directory, &[]);
    assert!(built, "{text}");
    assert_eq!(open(&client, "next")("cat /which"), "two\n");
}
