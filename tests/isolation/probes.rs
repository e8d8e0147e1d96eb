//! Attacks by hostile code in a sandbox. Each probe is a script for bash whose last line is SAFE or BREACH.

/// One attack on the sandbox.
pub struct Probe {
    pub group: &'static str,
    pub name: &'static str,
    pub script: &'static str,
}

/// Shell functions for all scripts.
///
/// `denied CMD…` is safe if the command fails, `absent PATH…` if none of the files can be opened, `unreachable
/// ADDRESS PORT` if no connection can be made. `sc NUMBER ARG…` makes a system call and fails if it does (`s:` begins
/// a string). The test sets the variables SERVER_PID, PORT, HOME_DIR, CANARY, MACHINE and GATEWAY.
pub const FUNCTIONS: &str = r#"
denied() { if timeout 10 "$@" >/dev/null 2>&1; then echo BREACH; else echo SAFE; fi; }
absent() { for f; do if [ -e "$f" ] && timeout 3 head -c 1 "$f" >/dev/null 2>&1 && [ -n "$(timeout 3 head -c 1 "$f" 2>/dev/null | od -An -c)" ]; then echo BREACH; return; fi; done; echo SAFE; }
sc() { perl -e 'my ($n, @a) = @ARGV; my @b = map { s/^s:// ? $_ : 0 + $_ } @a; my $r = syscall(0 + $n, @b); exit($r == -1 ? 1 : 0)' "$@"; }
unreachable() { if timeout 4 bash -c "exec 9<>/dev/tcp/$1/$2" 2>/dev/null; then echo BREACH; else echo SAFE; fi; }
export -f sc
dsc() { if timeout 10 bash -c 'sc "$@"' sc "$@" >/dev/null 2>&1; then echo BREACH; else echo SAFE; fi; }
"#;

const fn probe(group: &'static str, name: &'static str, script: &'static str) -> Probe {
    Probe { group, name, script }
}

pub const PROBES: &[Probe] = &[
    // Files.
    probe("files", "the machine's password hashes", "absent /etc/shadow /etc/gshadow /etc/shadow-"),
    probe(
        "files",
        "a file of the machine by its name",
        r#"[ -z "$(find / -xdev -name "$CANARY" 2>/dev/null)" ] && [ ! -e "$HOME_DIR/$CANARY" ] && echo SAFE || echo BREACH"#,
    ),
    probe(
        "files",
        "a file in the machine's /tmp",
        r#"[ -e "/tmp/$CANARY" ] && echo BREACH || echo SAFE"#,
    ),
    probe(
        "files",
        "a file in the machine's /var/tmp",
        r#"[ -e "/var/tmp/$CANARY" ] && echo BREACH || echo SAFE"#,
    ),
    probe(
        "files",
        "root's home of the machine",
        r#"ls -A /root | grep -qE '^(\.ssh|\.cargo|\.config|\.bash_history|\.npmrc)$' && echo BREACH || echo SAFE"#,
    ),
    probe(
        "files",
        "the server's home",
        r#"[ -e "$HOME_DIR/token" ] || [ -e "$HOME_DIR/stead.db" ] && echo BREACH || echo SAFE"#,
    ),
    probe("files", "write a program of the machine", "denied touch /usr/bin/probe"),
    probe("files", "replace a program of the machine", "denied cp /bin/true /usr/bin/env"),
    probe("files", "remount /usr writable", "denied mount -o remount,rw /usr"),
    probe("files", "mount a tmpfs", "denied mount -t tmpfs none /mnt"),
    probe(
        "files",
        "mount the machine's disk",
        "for d in /dev/vda /dev/sda /dev/nvme0n1 /dev/loop0; do mount $d /mnt 2>/dev/null && { echo BREACH; exit; }; done; echo SAFE",
    ),
    probe("files", "bind a directory", "denied mount --bind /usr /mnt"),
    probe("files", "unmount the covers of /proc", "denied umount /proc/keys"),
    probe("files", "unmount /proc", "denied umount -l /proc"),
    probe("files", "fsopen", "dsc 430 s:tmpfs 0"),
    probe("files", "open_tree", "dsc 428 -100 s:/ 1"),
    probe("files", "move_mount", "dsc 429 -100 s:/usr -100 s:/mnt 0"),
    probe("files", "mount_setattr", "dsc 442 -100 s:/usr 0 s:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa 32"),
    probe("files", "pivot_root", "dsc 155 s:/ s:/mnt"),
    probe("files", "chroot", "denied chroot / true"),
    probe(
        "files",
        "name_to_handle_at",
        "dsc 303 -100 s:/ s:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa s:bbbbbbbb 0",
    ),
    probe("files", "open_by_handle_at", "dsc 304 -100 s:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa 0"),
    probe("files", "make a block device", "denied mknod /tmp/disk b 254 0"),
    probe("files", "make a character device", "denied mknod /tmp/mem c 1 1"),
    probe(
        "files",
        "a block device in /dev",
        "[ -z \"$(find /dev -type b 2>/dev/null)\" ] && echo SAFE || echo BREACH",
    ),
    probe(
        "files",
        "the machine's memory and kernel log",
        "absent /dev/mem /dev/kmem /dev/port /dev/kmsg",
    ),
    probe(
        "files",
        "devices beyond the usual",
        "for d in /dev/fuse /dev/kvm /dev/net/tun /dev/loop-control /dev/vsock /dev/userfaultfd /dev/vhost-net; do [ -e $d ] && { echo BREACH; exit; }; done; echo SAFE",
    ),
    probe(
        "files",
        "the way out of the root",
        "[ \"$(stat -c %i /)\" = \"$(stat -c %i /proc/self/root/../../..)\" ] && echo SAFE || echo BREACH",
    ),
    probe("files", "the root of process 1", "denied ls /proc/1/root/"),
    probe("files", "the directory of process 1", "denied ls /proc/1/cwd/"),
    probe(
        "files",
        "write the host's program",
        "f=$(ls /.stead/* | head -1); denied sh -c \"echo x >> $f\"",
    ),
    probe("files", "remove the host's program", "f=$(ls /.stead/* | head -1); denied rm -f $f"),
    probe("files", "the disk's own layers", "denied ls /.stead/../../mapped"),
    probe(
        "files",
        "a set-user-id file in the workspace",
        "cp /bin/true /workspace/s; chmod 4755 /workspace/s 2>/dev/null; [ -u /workspace/s ] && echo BREACH || echo SAFE; rm -f /workspace/s",
    ),
    probe(
        "files",
        "a set-group-id file in the workspace",
        "cp /bin/true /workspace/g; chmod 2755 /workspace/g 2>/dev/null; [ -g /workspace/g ] && echo BREACH || echo SAFE; rm -f /workspace/g",
    ),
    probe(
        "files",
        "fchmodat with set-id bits",
        "cp /bin/true /workspace/f; sc 268 -100 s:/workspace/f 2541; [ -u /workspace/f ] && echo BREACH || echo SAFE; rm -f /workspace/f",
    ),
    probe(
        "files",
        "fchmodat2 with set-id bits",
        "cp /bin/true /workspace/f2; sc 452 -100 s:/workspace/f2 2541 0; [ -u /workspace/f2 ] && echo BREACH || echo SAFE; rm -f /workspace/f2",
    ),
    probe(
        "files",
        "open with set-id bits",
        "umask 0; sc 2 s:/workspace/o 577 2541; [ -u /workspace/o ] && echo BREACH || echo SAFE; rm -f /workspace/o",
    ),
    probe(
        "files",
        "openat with set-id bits",
        "umask 0; sc 257 -100 s:/workspace/oa 577 2541; [ -u /workspace/oa ] && echo BREACH || echo SAFE; rm -f /workspace/oa",
    ),
    probe(
        "files",
        "creat with set-id bits",
        "umask 0; sc 85 s:/workspace/c 2541; [ -u /workspace/c ] && echo BREACH || echo SAFE; rm -f /workspace/c",
    ),
    probe(
        "files",
        "mknod with set-id bits",
        "umask 0; sc 133 s:/workspace/m 35309 0; [ -u /workspace/m ] && echo BREACH || echo SAFE; rm -f /workspace/m",
    ),
    probe("files", "openat2", "dsc 437 -100 s:/ s:aaaaaaaaaaaaaaaaaaaaaaaa 24"),
    probe(
        "files",
        "file capabilities",
        "cp /bin/true /tmp/cap; denied setfattr -n security.capability -v 0sAAAAAgAgAAAAAAAAAAAAAAAAAAA= /tmp/cap",
    ),
    probe(
        "files",
        "trusted attributes",
        "touch /tmp/tr; dsc 188 s:/tmp/tr s:trusted.overlay.opaque s:y 1 0",
    ),
    probe(
        "files",
        "other mounts of the machine",
        "awk '{print $5}' /proc/self/mountinfo | grep -vE '^/($|proc|dev|sys|run|usr|bin|sbin|lib|\\.stead|workspace|memories|var/lib/dpkg$|etc/(hosts|hostname|resolv.conf)$)' | grep -q . && echo BREACH || echo SAFE",
    ),
    probe(
        "files",
        "a file that cannot be removed",
        "touch /workspace/i; denied chattr +i /workspace/i; rm -f /workspace/i",
    ),
    probe(
        "files",
        "freeze the machine's disk",
        "perl -e 'opendir(D, \"/workspace\"); sysopen(F, \"/workspace\", 0) or exit 1; exit(syscall(16, fileno(F), 0xC0045877, 0) < 0 ? 1 : 0)' && echo BREACH || echo SAFE",
    ),
    probe(
        "files",
        "a way out of the workspace by links",
        "ln -sfn / /workspace/up; ls \"/workspace/up$HOME_DIR\" >/dev/null 2>&1 && echo BREACH || echo SAFE; rm -f /workspace/up",
    ),
    probe(
        "files",
        "above the workspace",
        "[ \"$(ls -di /workspace/.. | cut -d' ' -f1)\" = \"$(ls -di / | cut -d' ' -f1)\" ] && echo SAFE || echo BREACH",
    ),
    probe(
        "files",
        "keys of the machine's services",
        "for f in /etc/ssh/*_key /etc/ssl/private/* /var/lib/private/* /etc/machine-id; do [ -s $f ] && [ -r $f ] && { echo $f; echo BREACH; exit; }; done; echo SAFE",
    ),
    probe("files", "the machine's rules for sudo", "absent /etc/sudoers /etc/sudoers.d/*"),
    probe(
        "files",
        "homes of the machine's people",
        "[ -z \"$(ls -A /home 2>/dev/null)\" ] && echo SAFE || echo BREACH",
    ),
    probe(
        "files",
        "sockets of the machine's services",
        "[ -z \"$(find / -xdev -type s 2>/dev/null; find /run /var/run/ /tmp -type s 2>/dev/null)\" ] && echo SAFE || echo BREACH",
    ),
    probe(
        "files",
        "an overlay or a file system in user space",
        "mkdir -p /tmp/m; denied mount -t overlay -o lowerdir=/usr,upperdir=/tmp,workdir=/root none /tmp/m",
    ),
    // Processes.
    probe(
        "processes",
        "an exit of process 1 by a trace of its child",
        "dsc 101 16 $PPID 0 0 && sc 101 17 $PPID 0 0; kill -0 1 && echo SAFE || echo BREACH",
    ),
    probe(
        "processes",
        "a signal from another's name",
        "perl -e '$i = pack(\"iiiiLLq12\", 9, 0, 0, 0, 0, 0); exit(syscall(129, 1, 9, $i) < 0 ? 1 : 0)'; sleep 0.2; kill -0 1 && echo SAFE || echo BREACH",
    ),
    probe(
        "processes",
        "see the server",
        "ls /proc | grep -E '^[0-9]+$' | while read p; do tr '\\0' ' ' < /proc/$p/cmdline 2>/dev/null; echo; done | grep -q 'stead.* [s]erve' && echo BREACH || echo SAFE",
    ),
    probe(
        "processes",
        "see more than the sandbox",
        "[ $(ls /proc | grep -cE '^[0-9]+$') -lt 40 ] && echo SAFE || echo BREACH",
    ),
    probe(
        "processes",
        "signal the server",
        "if [ -d /proc/$SERVER_PID ]; then echo SAFE; else denied kill -0 $SERVER_PID; fi",
    ),
    probe(
        "processes",
        "kill process 1",
        "kill -9 1; sleep 0.2; kill -0 1 && echo SAFE || echo BREACH",
    ),
    probe(
        "processes",
        "ask process 1 to end",
        "kill -TERM 1; kill -INT 1; kill -HUP 1; kill -QUIT 1; sleep 0.2; kill -0 1 && echo SAFE || echo BREACH",
    ),
    probe(
        "processes",
        "stop process 1",
        "kill -STOP 1; sleep 0.2; grep -q 'State:.T' /proc/1/status && echo BREACH || echo SAFE",
    ),
    probe("processes", "trace process 1", "dsc 101 16 1 0 0"),
    probe("processes", "seize process 1", "dsc 101 16902 1 0 0"),
    probe("processes", "the memory of process 1", "absent /proc/1/mem"),
    probe("processes", "the environment of process 1", "absent /proc/1/environ"),
    probe("processes", "the mappings of process 1", "absent /proc/1/maps"),
    probe(
        "processes",
        "the descriptors of process 1",
        "for f in 0 1 2 3 4 5; do readlink /proc/1/fd/$f && { echo BREACH; exit; }; done 2>/dev/null; echo SAFE",
    ),
    probe("processes", "open the terminals of process 1", "denied ls /proc/1/fd/4/"),
    probe("processes", "process_vm_readv", "dsc 310 1 s:aaaaaaaaaaaaaaaa 1 s:aaaaaaaaaaaaaaaa 1 0"),
    probe(
        "processes",
        "process_vm_writev",
        "dsc 311 1 s:aaaaaaaaaaaaaaaa 1 s:aaaaaaaaaaaaaaaa 1 0",
    ),
    probe(
        "processes",
        "pidfd_getfd",
        "perl -e '$p = syscall(434, 1, 0); exit 1 if $p < 0; $r = syscall(438, $p, 3, 0); exit($r < 0 ? 1 : 0)' && echo BREACH || echo SAFE",
    ),
    probe("processes", "kcmp", "dsc 312 1 1 0 0 0"),
    probe("processes", "ptrace", "dsc 101 0 0 0 0"),
    probe("processes", "personality", "dsc 135 262144"),
    probe("processes", "enter the namespaces of process 1", "denied nsenter -t 1 -m true"),
    probe(
        "processes",
        "setns",
        "perl -e 'open(F, \"<\", \"/proc/self/ns/net\"); exit(syscall(308, fileno(F), 0) < 0 ? 1 : 0)' && echo BREACH || echo SAFE",
    ),
    probe(
        "processes",
        "a better priority than given",
        "[ \"$(nice -n -5 nice 2>/dev/null)\" -ge 0 ] && echo SAFE || echo BREACH",
    ),
    probe("processes", "a real-time priority", "denied chrt -f 10 true"),
    probe(
        "processes",
        "a memory weight below the host's",
        "denied sh -c 'echo -1000 > /proc/self/oom_score_adj'",
    ),
    probe(
        "processes",
        "a limit above the hard one",
        "ulimit -Hc unlimited 2>/dev/null && echo BREACH || echo SAFE",
    ),
    probe(
        "processes",
        "a descriptor that was left open",
        "ls -l /proc/self/fd | grep -qE 'ns/|user:|mnt:|net:|loop|\\.img|cgroup' && echo BREACH || echo SAFE",
    ),
    probe(
        "processes",
        "a session of another terminal's",
        "perl -e 'exit(syscall(16, 0, 0x540E, 1) < 0 ? 1 : 0)' </dev/tty && echo BREACH || echo SAFE",
    ),
    probe(
        "processes",
        "write another's memory by its file",
        "sleep 30 & denied sh -c \"echo x > /proc/1/mem\"; kill $!",
    ),
    probe(
        "processes",
        "the next process id",
        "denied sh -c 'echo 1 > /proc/sys/kernel/ns_last_pid'",
    ),
    probe(
        "processes",
        "a core by a program of the machine",
        "[ \"$(ulimit -Hc)\" = 0 ] && echo SAFE || echo BREACH",
    ),
    // The kernel.
    probe(
        "kernel",
        "the 32-bit door of x86_64 (x32)",
        "perl -e 'my $p = fork; if (!$p) { exit(syscall(0x40000000 + 39) > 0 ? 0 : 1) } waitpid($p, 0); exit($? == 0 ? 0 : 1)' && echo BREACH || echo SAFE",
    ),
    probe(
        "kernel",
        "unprivileged user namespaces by clone, low bits set",
        "perl -e '$r = syscall(56, 0x10000000 | 17 | 0x100, 0, 0, 0, 0); exit(0) if defined $r && $r == 0; exit($r < 0 ? 1 : 0)' && echo BREACH || echo SAFE",
    ),
    probe("kernel", "an unknown call that may come", "dsc 470 0 0 0 0"),
    probe(
        "kernel",
        "open_tree_attr",
        "dsc 467 -100 s:/usr 1 s:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa 32",
    ),
    probe("kernel", "process_madvise", "dsc 440 1 0 0 0 0"),
    probe("kernel", "io_uring_enter", "dsc 426 0 0 0 0 0 0"),
    probe("kernel", "io_uring_register", "dsc 427 0 0 0 0"),
    probe("kernel", "syslog", "dsc 103 3 s:aaaaaaaaaaaaaaaa 16"),
    probe(
        "kernel",
        "adjust the clock",
        "perl -e '$t = \"\\1\" . \"\\0\" x 207; exit(syscall(305, 0, $t) < 0 ? 1 : 0)' && echo BREACH || echo SAFE",
    ),
    probe(
        "kernel",
        "write any setting of the kernel",
        "for f in $(find /proc/sys -type f -perm -u+w 2>/dev/null | head -2000); do v=$(head -c 200 $f 2>/dev/null) || continue; echo \"$v\" 2>/dev/null > $f && { echo $f; echo BREACH; exit; }; done 2>/dev/null; echo SAFE",
    ),
    probe(
        "kernel",
        "write anything beneath /proc that is not a process",
        "for f in /proc/irq/default_smp_affinity /proc/fs /proc/bus/pci /proc/mtrr /proc/acpi/wakeup /proc/sys/vm/drop_caches /proc/sys/kernel/panic /proc/sys/fs/suid_dumpable; do [ -f $f ] && [ -w $f ] && echo 1 2>/dev/null > $f && { echo $f; echo BREACH; exit; }; done 2>/dev/null; echo SAFE",
    ),
    probe(
        "kernel",
        "the firmware and the tables of the machine",
        "absent /sys/firmware/acpi/tables/DSDT /sys/kernel/vmcoreinfo /sys/kernel/notes /sys/power/state",
    ),
    probe(
        "kernel",
        "debugging and tracing",
        "ls /sys/kernel/debug /sys/kernel/tracing /sys/fs/bpf >/dev/null 2>&1 && echo BREACH || echo SAFE",
    ),
    probe(
        "kernel",
        "core_pattern",
        "denied sh -c 'echo \"|/tmp/x\" > /proc/sys/kernel/core_pattern'",
    ),
    probe("kernel", "modprobe's path", "denied sh -c 'echo /tmp/x > /proc/sys/kernel/modprobe'"),
    probe("kernel", "binfmt_misc", "denied sh -c 'echo x > /proc/sys/fs/binfmt_misc/register'"),
    probe("kernel", "sysrq", "denied sh -c 'echo h > /proc/sysrq-trigger'"),
    probe("kernel", "the kernel's memory", "absent /proc/kcore"),
    probe(
        "kernel",
        "the kernel's addresses",
        "grep -qvE '^0+ ' /proc/kallsyms 2>/dev/null && echo BREACH || echo SAFE",
    ),
    probe("kernel", "the kernel's log", "denied dmesg"),
    probe(
        "kernel",
        "the kernel's keys, timers and modules",
        "absent /proc/keys /proc/timer_list /proc/modules /proc/slabinfo /proc/iomem",
    ),
    probe("kernel", "init_module", "dsc 175 s:aaaa 4 s:"),
    probe("kernel", "finit_module", "dsc 313 0 s: 0"),
    probe("kernel", "delete_module", "dsc 176 s:loop 2048"),
    probe("kernel", "kexec_load", "dsc 246 0 0 0 0"),
    probe(
        "kernel",
        "bpf",
        "dsc 321 0 s:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa 72",
    ),
    probe(
        "kernel",
        "perf_event_open",
        "dsc 298 s:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa 0 -1 -1 0",
    ),
    probe("kernel", "userfaultfd", "dsc 323 0"),
    probe("kernel", "userfaultfd for user faults", "dsc 323 1"),
    probe(
        "kernel",
        "io_uring_setup",
        "perl -e '$p = \"\\0\" x 120; exit(syscall(425, 4, $p) < 0 ? 1 : 0)' && echo BREACH || echo SAFE",
    ),
    probe("kernel", "keyctl", "dsc 250 0 -3 1"),
    probe("kernel", "add_key", "dsc 248 s:user s:probe s:x 1 -3"),
    probe("kernel", "request_key", "dsc 249 s:user s:probe s:x -3"),
    probe("kernel", "reboot", "dsc 169 0xfee1dead 672274793 0 0"),
    probe("kernel", "swapon", "dsc 167 s:/tmp/swap 0"),
    probe("kernel", "set the time", "denied date -s '2001-01-01'"),
    probe(
        "kernel",
        "clock_settime",
        "perl -e '$t = pack(\"qq\", 1000000000, 0); exit(syscall(227, 0, $t) < 0 ? 1 : 0)' && echo BREACH || echo SAFE",
    ),
    probe("kernel", "set the host name", "denied hostname probe"),
    probe("kernel", "acct", "dsc 163 0"),
    probe("kernel", "quotactl", "dsc 179 -2147483391 s:/ 0 0"),
    probe("kernel", "iopl", "dsc 172 3"),
    probe("kernel", "ioperm", "dsc 173 128 1 1"),
    probe(
        "kernel",
        "modify_ldt",
        "perl -e '$p = \"\\0\" x 16; exit(syscall(154, 1, $p, 16) < 0 ? 1 : 0)' && echo BREACH || echo SAFE",
    ),
    probe("kernel", "fanotify_init", "dsc 300 0 0"),
    probe("kernel", "memfd_secret", "dsc 447 0"),
    probe("kernel", "move_pages of another", "dsc 279 1 0 0 0 0 0"),
    probe("kernel", "a user namespace", "denied unshare -U true"),
    probe(
        "kernel",
        "a user namespace with all rights",
        "denied unshare -Ur mount -t tmpfs none /mnt",
    ),
    probe("kernel", "a mount namespace", "denied unshare -m true"),
    probe("kernel", "a network namespace", "denied unshare -n true"),
    probe("kernel", "a process namespace", "denied unshare -p --fork true"),
    probe("kernel", "a cgroup namespace", "denied unshare -C true"),
    probe("kernel", "a time namespace", "denied unshare -T true"),
    probe(
        "kernel",
        "clone with a user namespace",
        "perl -e '$r = syscall(56, 0x10000011, 0, 0, 0, 0); exit(0) if defined $r && $r == 0; exit($r < 0 ? 1 : 0)' && echo BREACH || echo SAFE",
    ),
    probe(
        "kernel",
        "clone3",
        "perl -e '$a = pack(\"Q8\", 0x10000000, 0, 0, 0, 17, 0, 0, 0); $r = syscall(435, $a, 64); exit($r < 0 ? 1 : 0)' && echo BREACH || echo SAFE",
    ),
    probe(
        "kernel",
        "the machine's /sys",
        "ls -A /sys/kernel /sys/firmware /sys/class /sys/module /sys/block 2>/dev/null | grep -vE '^(/sys/.*:)?$' | grep -q . && echo BREACH || echo SAFE",
    ),
    probe(
        "kernel",
        "a cgroup to write to",
        "for f in /sys/fs/cgroup/release_agent /sys/fs/cgroup/*/release_agent /sys/fs/cgroup/cgroup.procs; do [ -w $f ] && { echo BREACH; exit; }; done; echo SAFE",
    ),
    probe("kernel", "mount cgroups", "denied mount -t cgroup -o memory none /mnt"),
    probe(
        "kernel",
        "statmount",
        "dsc 457 s:aaaaaaaaaaaaaaaaaaaaaaaa s:bbbbbbbbbbbbbbbbbbbbbbbbbbbb 24 0",
    ),
    // Privileges.
    probe(
        "privileges",
        "any capability",
        "grep -E '^Cap(Inh|Prm|Eff|Bnd|Amb)' /proc/self/status | grep -qv '0000000000000000' && echo BREACH || echo SAFE",
    ),
    probe(
        "privileges",
        "new privileges",
        "grep -q 'NoNewPrivs:.1' /proc/self/status && echo SAFE || echo BREACH",
    ),
    probe(
        "privileges",
        "no filter of system calls",
        "grep -q 'Seccomp:.2' /proc/self/status && echo SAFE || echo BREACH",
    ),
    probe(
        "privileges",
        "a user of the machine",
        "[ $(awk '{print $2}' /proc/self/uid_map) -ge 1000000 ] && [ $(awk '{print $2}' /proc/self/gid_map) -ge 1000000 ] && echo SAFE || echo BREACH",
    ),
    probe("privileges", "become another user", "dsc 105 1000"),
    probe("privileges", "su and sudo", "denied sh -c 'su nobody -s /bin/true || sudo -n true'"),
    probe(
        "privileges",
        "other groups",
        "perl -e '$g = pack(\"I\", 0); exit(syscall(116, 1, $g) < 0 ? 1 : 0)' && echo BREACH || echo SAFE",
    ),
    probe("privileges", "give a file away", "touch /tmp/own; denied chown 1 /tmp/own"),
    probe("privileges", "write the user map", "denied sh -c 'echo 0 0 1 > /proc/self/uid_map'"),
    probe(
        "privileges",
        "drop the filter",
        "perl -e 'exit(syscall(157, 22, 0) < 0 ? 1 : 0)' && echo BREACH || echo SAFE",
    ),
    probe(
        "privileges",
        "a set-user-id program",
        "grep -q 'NoNewPrivs:.1' /proc/self/status && { echo SAFE; exit; }; find /usr -perm -4000 -type f 2>/dev/null | head -5 | while read f; do findmnt -no OPTIONS -T $f 2>/dev/null | grep -q nosuid || echo BREACH; done | grep -q BREACH && echo BREACH || echo SAFE",
    ),
    probe(
        "privileges",
        "raise a capability",
        "perl -e '$h = pack(\"LL\", 0x20080522, 0); $d = pack(\"L6\", ~0, ~0, ~0, ~0, ~0, ~0); exit(syscall(126, $h, $d) < 0 ? 1 : 0)' && echo BREACH || echo SAFE",
    ),
    probe("privileges", "an ambient capability", "dsc 157 47 2 21 0 0"),
    probe(
        "privileges",
        "keep capabilities over a change of user",
        "perl -e 'exit(syscall(157, 28, 1, 0, 0, 0) < 0 ? 1 : 0)' && echo BREACH || echo SAFE",
    ),
    probe(
        "privileges",
        "new privileges again",
        "perl -e 'exit(syscall(157, 38, 0, 0, 0, 0) < 0 ? 1 : 0)' && echo BREACH || echo SAFE",
    ),
    probe(
        "privileges",
        "the security label",
        "denied sh -c 'echo unconfined > /proc/self/attr/current'",
    ),
    // Resources.
    probe(
        "resources",
        "terminals of the whole machine",
        "perl -e 'for (1 .. 400) { open(my $f, \"+<\", \"/dev/ptmx\") or last; push @f, $f } exit(@f < 300 ? 0 : 1)' && echo SAFE || echo BREACH",
    ),
    probe(
        "resources",
        "open files without end",
        "[ \"$(ulimit -Hn)\" -le 65536 ] && echo SAFE || echo BREACH",
    ),
    probe(
        "resources",
        "locked memory without end",
        "[ \"$(ulimit -Hl)\" != unlimited ] && echo SAFE || echo BREACH",
    ),
    probe(
        "resources",
        "pending signals without end",
        "[ \"$(ulimit -Hi)\" -le 16384 ] && echo SAFE || echo BREACH",
    ),
    probe(
        "resources",
        "a file larger than its disk",
        "denied truncate -s 1T /workspace/large; rm -f /workspace/large",
    ),
    probe(
        "resources",
        "message queues without end",
        "[ \"$(ulimit -Hq)\" -le 819200 ] && echo SAFE || echo BREACH",
    ),
    probe("resources", "huge pages", "denied sh -c 'echo 64 > /proc/sys/vm/nr_hugepages'"),
    probe(
        "resources",
        "a real-time share",
        "perl -e '$p = pack(\"i\", 50); exit(syscall(144, 0, 1, $p) < 0 ? 1 : 0)' && echo BREACH || echo SAFE",
    ),
    probe(
        "resources",
        "more memory than it may",
        "grep -q . /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null && denied sh -c 'echo -1 > /sys/fs/cgroup/memory/memory.limit_in_bytes' || echo SAFE",
    ),
    probe("resources", "disk time before all others", "dsc 251 1 0 8192"),
    probe(
        "resources",
        "processor time by a deadline",
        "perl -e '$a = pack(\"LLQlLQQQ\", 48, 6, 0, 0, 0, 10000000, 100000000, 100000000); exit(syscall(314, 0, $a, 0) < 0 ? 1 : 0)' && echo BREACH || echo SAFE",
    ),
    probe(
        "resources",
        "more memory locked than it may",
        "perl -e '$x = \"x\" x (4 << 20); exit(syscall(149, $x, 4 << 20) < 0 ? 1 : 0)' && echo BREACH || echo SAFE",
    ),
    probe(
        "resources",
        "swap of its own",
        "head -c 1M /dev/zero > /tmp/swap; dsc 167 s:/tmp/swap 0",
    ),
    // The terminal.
    probe(
        "tty",
        "take the console (TIOCCONS)",
        "perl -e 'open(T, \"+<\", \"/dev/tty\") or exit 1; exit(syscall(16, fileno(T), 0x541d, 0) < 0 ? 1 : 0)' && echo BREACH || echo SAFE",
    ),
    probe(
        "tty",
        "mount the terminals of the machine",
        "mkdir -p /tmp/pts; denied mount -t devpts devpts /tmp/pts",
    ),
    probe(
        "tty",
        "type into the terminal (TIOCSTI)",
        "perl -e '$c = \"x\"; open(T, \"<\", \"/dev/tty\") or exit 1; exit(ioctl(T, 0x5412, $c) ? 0 : 1)' && echo BREACH || echo SAFE",
    ),
    probe(
        "tty",
        "the same with a high half",
        "perl -e '$c = \"x\"; open(T, \"<\", \"/dev/tty\") or exit 1; exit(syscall(16, fileno(T), 0x100005412, $c) < 0 ? 1 : 0)' && echo BREACH || echo SAFE",
    ),
    probe(
        "tty",
        "paste into the console (TIOCLINUX)",
        "perl -e '$c = \"\\3\" . \"\\0\" x 15; open(T, \"<\", \"/dev/tty\") or exit 1; exit(syscall(16, fileno(T), 0x541c, $c) < 0 ? 1 : 0)' && echo BREACH || echo SAFE",
    ),
    probe(
        "tty",
        "another line discipline (TIOCSETD)",
        "perl -e '$c = pack(\"i\", 21); open(T, \"<\", \"/dev/tty\") or exit 1; exit(syscall(16, fileno(T), 0x5423, $c) < 0 ? 1 : 0)' && echo BREACH || echo SAFE",
    ),
    probe(
        "tty",
        "terminals of the machine",
        "[ $(ls /dev/pts | grep -cE '^[0-9]+$') -le 4 ] && echo SAFE || echo BREACH",
    ),
    probe(
        "tty",
        "consoles",
        "for d in /dev/console /dev/tty0 /dev/tty1 /dev/ttyS0 /dev/vcs /dev/hvc0; do [ -e $d ] && { echo BREACH; exit; }; done; echo SAFE",
    ),
    // The network.
    probe("network", "a vsock", "dsc 41 40 1 0"),
    probe("network", "a packet socket", "dsc 41 17 3 768"),
    probe("network", "a raw socket", "dsc 41 2 3 1"),
    probe("network", "kernel cryptography", "dsc 41 38 5 0"),
    probe("network", "bluetooth", "dsc 41 31 3 1"),
    probe("network", "XDP", "dsc 41 44 3 0"),
    probe("network", "IPsec keys", "dsc 41 15 3 2"),
    probe("network", "CAN", "dsc 41 29 3 1"),
    probe("network", "TIPC", "dsc 41 30 1 0"),
    probe("network", "RDS", "dsc 41 21 5 0"),
    probe("network", "netlink to the packet filter", "dsc 41 16 3 12"),
    probe("network", "netlink to the auditor", "dsc 41 16 3 9"),
    probe("network", "generic netlink", "dsc 41 16 3 16"),
    probe("network", "a family with a high half", "dsc 41 4294967336 1 0"),
    probe("network", "SCTP past the rules", "dsc 41 2 5 132"),
    probe("network", "another protocol of version 4", "dsc 41 2 3 47"),
    probe(
        "network",
        "mark a packet",
        "perl -MSocket -e 'socket(S, AF_INET, SOCK_STREAM, 0); exit(setsockopt(S, SOL_SOCKET, 36, pack(\"i\", 1)) ? 0 : 1)' && echo BREACH || echo SAFE",
    ),
    probe(
        "network",
        "bind to another's address",
        "perl -MSocket -e 'socket(S, AF_INET, SOCK_DGRAM, 0); setsockopt(S, 0, 19, pack(\"i\", 1)) and exit 0; exit(bind(S, pack_sockaddr_in(9, inet_aton($ENV{MACHINE}))) ? 0 : 1)' && echo BREACH || echo SAFE",
    ),
    probe(
        "network",
        "a name server that is not this machine's",
        "timeout 4 perl -MSocket -e 'socket(S, AF_INET, SOCK_DGRAM, 0); connect(S, pack_sockaddr_in(53, inet_aton(\"10.1.2.3\"))) or exit 1; send(S, \"x\", 0) or exit 1; select(undef, undef, undef, 0.3); send(S, \"x\", 0) or exit 1; exit 0' && echo BREACH || echo SAFE",
    ),
    probe(
        "network",
        "the neighbours of the wire",
        "ip neigh add 198.18.0.1 lladdr 00:11:22:33:44:55 dev eth0 2>/dev/null && echo BREACH || echo SAFE",
    ),
    probe(
        "network",
        "version 6 of the protocol out",
        "ip -6 addr show dev eth0 2>/dev/null | grep -q inet6 && echo BREACH || echo SAFE",
    ),
    probe(
        "network",
        "the machine by version 6",
        "for a in $(ip -6 route 2>/dev/null | awk '/via/ {print $3}'); do timeout 2 bash -c \"exec 9<>/dev/tcp/$a/$PORT\" 2>/dev/null && { echo BREACH; exit; }; done; echo SAFE",
    ),
    probe("network", "this machine as the broadcast", "unreachable 255.255.255.255 $PORT"),
    probe("network", "this machine as zero", "unreachable 0.0.0.0 $PORT"),
    probe("network", "add an interface", "denied ip link add dummy0 type dummy"),
    probe("network", "add an address", "denied ip addr add 10.9.9.9/24 dev lo"),
    probe("network", "change a route", "denied ip route add 10.0.0.0/8 dev lo"),
    probe("network", "see the rules", "denied nft list ruleset"),
    probe("network", "flush the rules", "denied nft flush ruleset"),
    probe("network", "the server on the loopback", "unreachable 127.0.0.1 $PORT"),
    probe("network", "the server on the machine's address", "unreachable $MACHINE $PORT"),
    probe("network", "the server by the gateway", "unreachable $GATEWAY $PORT"),
    probe("network", "a service of the machine by the gateway", "unreachable $GATEWAY 81"),
    probe("network", "a service on the machine's address", "unreachable $MACHINE 81"),
    probe("network", "a metadata service", "unreachable 169.254.169.254 80"),
    probe("network", "a private network (10)", "unreachable 10.1.2.3 80"),
    probe("network", "a private network (172.16)", "unreachable 172.16.9.9 80"),
    probe("network", "a private network (192.168)", "unreachable 192.168.7.7 80"),
    probe("network", "a shared network (100.64)", "unreachable 100.64.1.1 80"),
    probe("network", "a private name in numbers", "unreachable 0xa010203 80"),
    probe(
        "network",
        "the machine's abstract sockets",
        r#"perl -MSocket -e 'socket(S, AF_UNIX, SOCK_STREAM, 0); exit(connect(S, pack_sockaddr_un("\0$ENV{CANARY}")) ? 0 : 1)' && echo BREACH || echo SAFE"#,
    ),
    probe(
        "network",
        "the machine's interfaces",
        "[ $(grep -c : /proc/net/dev) -le 2 ] && echo SAFE || echo BREACH",
    ),
    probe(
        "network",
        "the machine's sockets",
        "grep -q $CANARY /proc/net/unix && echo BREACH || echo SAFE",
    ),
    probe("network", "the loopback, mapped into version 6", "unreachable ::ffff:127.0.0.1 $PORT"),
    probe("network", "the machine, mapped into version 6", "unreachable ::ffff:$MACHINE $PORT"),
    probe(
        "network",
        "a metadata service, mapped into version 6",
        "unreachable ::ffff:169.254.169.254 80",
    ),
    probe("network", "a private network, mapped into version 6", "unreachable ::ffff:10.1.2.3 80"),
    probe("network", "the machine by its link", "unreachable fe80::1%eth0 $PORT"),
    probe("network", "a metadata service in numbers", "unreachable 2852039166 80"),
    probe("network", "all of this network", "unreachable 0 $PORT"),
    probe(
        "network",
        "another sandbox's end of the wire",
        "for n in 1 5 9 253; do timeout 1 bash -c \"exec 9<>/dev/tcp/198.18.0.$n/$PORT\" 2>/dev/null && { echo BREACH; exit; }; done; echo SAFE",
    ),
    probe(
        "network",
        "a datagram to the machine",
        "perl -MSocket -e 'socket(S, AF_INET, SOCK_DGRAM, 0); connect(S, pack_sockaddr_in($ENV{PORT}, inet_aton($ENV{GATEWAY}))) or exit 1; send(S, \"x\", 0) or exit 1; select(undef, undef, undef, 0.3); exit(send(S, \"x\", 0) && $ENV{GATEWAY} ne \"0.0.0.0\" ? 0 : 1)' && echo BREACH || echo SAFE",
    ),
    probe(
        "network",
        "a group of the machine's network",
        "perl -MSocket -e 'socket(S, AF_INET, SOCK_DGRAM, 0); exit(send(S, \"x\", 0, pack_sockaddr_in(5353, inet_aton(\"224.0.0.251\"))) ? 0 : 1)' && echo BREACH || echo SAFE",
    ),
    // The server.
    probe(
        "server",
        "the host's socket by name",
        "[ -z \"$(find / -xdev -name 'host.sock' 2>/dev/null)\" ] && ! grep -q host.sock /proc/net/unix && echo SAFE || echo BREACH",
    ),
    probe(
        "server",
        "a token",
        "! grep -rqs \"$CANARY\" /run /etc /root /.stead 2>/dev/null && echo SAFE || echo BREACH",
    ),
    probe(
        "server",
        "the server's environment",
        "env | grep -q PROBE_SECRET && echo BREACH || echo SAFE",
    ),
    probe(
        "server",
        "the logs of terminals",
        "[ -z \"$(find / -xdev -path '*/log/*' -name '*.log' -newer /etc/hostname -not -path '/var/*' 2>/dev/null | head -1)\" ] && echo SAFE || echo BREACH",
    ),
    probe(
        "server",
        "the engine's socket",
        "for f in /var/run/docker.sock /run/docker.sock /run/podman/podman.sock /run/containerd/containerd.sock; do [ -e $f ] && { echo BREACH; exit; }; done; echo SAFE",
    ),
];
