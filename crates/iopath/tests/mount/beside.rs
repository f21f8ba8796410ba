//! The same scripts on our mount and on the kernel's own mount of a copy of the image: what they
//! print is equal, also after both were unmounted.

use std::fs;
use std::path::Path;

use testkit::judge::{self, LoopMount};

use crate::host::{Mounted, check, image, on_each_format, place, scale, shell};

/// Runs `before` on both mounts of `image`, then `after` once both are mounted anew; answers what
/// both printed, after the judge has looked at ours. `$outside` is a directory of the host's own.
#[track_caller]
fn beside_the_kernel(image: &Path, kind: &str, before: &str, after: &str) -> [String; 2] {
    let said = both_say(image, kind, before, after);
    check(image);
    said
}

/// As [`beside_the_kernel`], for images that no judge likes.
#[track_caller]
fn both_say(image: &Path, kind: &str, before: &str, after: &str) -> [String; 2] {
    let copy = image.with_extension("copy");
    fs::copy(image, &copy).unwrap();
    let outside = |side: &str| {
        let dir = image.with_extension(side);
        fs::create_dir_all(&dir).unwrap();
        format!("outside={}\n", dir.display())
    };
    let scripts = [before, after];
    let ours = scripts.map(|script| {
        let mount = Mounted::new(image, "");
        let said = shell(mount.dir(), &(outside("ours") + script));
        mount.unmount();
        said
    });
    let kernel = scripts.map(|script| {
        let mount = LoopMount::new(&copy, kind, "rw,noatime").unwrap();
        shell(&mount.path(), &(outside("kernel") + script))
    });
    for (ours, kernel) in ours.iter().zip(&kernel) {
        let pairs = ours.lines().zip(kernel.lines()).filter(|(ours, kernel)| ours != kernel);
        let differ = pairs.take(8).map(|(a, b)| format!("ours:   {a}\nkernel: {b}\n"));
        assert!(ours == kernel, "{kind}:\n{}of\n{ours}", differ.collect::<String>());
    }
    ours
}

/// Times before 1970, after 2038 and at the ends of what each form of inode can hold.
fn times_of_all_years(kind: &str) {
    // Of the forms in turn: the ends of the short one, of ext4's long one, of XFS's.
    const SECONDS: &str = "-99999999999 -2147483649.5 -2147483649 -2147483648 \
        -2147483647.999999999 -86400.25 -1.000000001 -1 -0.000000001 0 0.999999999 \
        2147483647 2147483647.999999999 \
        2147483648 4294967296 6442450943.5 6442450944 8589934592 10737418240 12884901888.25 \
        15032385535 15032385535.999999999 15032385536 16299260424 16299260424.999999999 \
        16299260425 99999999999 253402300799";
    let forms: &[&[&str]] = match kind {
        "xfs" => &[&["-m", "bigtime=1"], &["-m", "bigtime=0"]],
        _ => &[&["-t", "ext4"], &["-t", "ext4", "-I", "128"], &["-t", "ext2", "-I", "128"]],
    };
    for form in forms {
        let place = place();
        let image = place.path().join(format!("{kind}.img"));
        if kind == "xfs" {
            fs::File::create(&image).unwrap().set_len(304 << 20).unwrap();
            judge::run_ok("mkfs.xfs", &[&"-q", &form[0], &form[1], &image]);
        } else {
            judge::mke2fs(&image, 16 << 20, form);
        }
        let before = format!(
            "for s in {SECONDS}; do echo >f$s; mkdir d$s; ln -s x l$s
             touch -h -m -d @$s f$s d$s l$s; touch -h -a -d @1 f$s d$s l$s; touch g$s
             touch -a -d @$s g$s; touch -m -d @1 g$s; done; stat -c '%n %x %y' [fgdl]-1 [fgdl]0"
        );
        let after = "stat -c '%n %x %y' [fdgl]*; touch -h -r f2147483648 l0; cp -p f-1 h
             stat -c '%n %x %y' l0 h";
        let kind = if form.contains(&"ext2") { "ext2" } else { kind };
        let [_, said] = beside_the_kernel(&image, kind, &before, after);
        let short = form.contains(&"128") || form.contains(&"bigtime=0");
        let late = if short { "f4294967296 1970-01-01 00:00:01" } else { "2106-02-07 06:28:16" };
        assert!(said.contains(late) && said.contains("1901-12-13 20:45:52"), "{form:?}: {said}");
    }
}

/// Symbolic links of all lengths around the borders of their forms, in blocks of 1 and of 4 KiB.
fn symbolic_links_of_all_lengths(kind: &str) {
    for block in ["1024", "4096"] {
        let place = place();
        let image = place.path().join(format!("{kind}.img"));
        if kind == "xfs" {
            fs::File::create(&image).unwrap().set_len(304 << 20).unwrap();
            judge::run_ok("mkfs.xfs", &[&"-q", &"-b", &format!("size={block}"), &image]);
        } else {
            judge::mke2fs(&image, 16 << 20, &["-t", kind, "-b", block]);
        }
        let read = r#"for (sort { $a <=> $b } glob "[0-9]*") {
               my $t = readlink; print "$_ ", length $t, " ", (lstat)[7], " ",
                 $t eq substr("0123456789/" x 400, 0, $_) ? "whole" : "torn", "\n" }"#;
        let make = r#"for (1, 2, 27..31, 58..62, 154..160, 330..350, 511, 512, 900..1100,
                 2047..2050, 3900, 4000..4096) {
               symlink(substr("0123456789/" x 400, 0, $_), $_) or print "$_: $!\n" }"#;
        let before = format!("perl -e '{make} {read}'");
        let after = format!("perl -e '{read} unlink(glob \"[0-9]*\")'; ls");
        let [_, said] = beside_the_kernel(&image, kind, &before, &after);
        let largest = if kind == "ext4" && block == "4096" { 4095 } else { 1023 };
        assert!(said.contains(&format!("{largest} {largest} {largest} whole\n")), "{said}");
        assert!(!said.contains("torn"), "{said}");
    }
}

/// Nodes of all kinds: devices of the smallest and the largest numbers, sockets and fifos that
/// processes meet at, before and after a remount.
fn devices_sockets_and_fifos(kind: &str) {
    let place = place();
    let image = image(place.path(), kind, 16 << 20);
    let look = "stat -c '%n %F %a %u %g %h %s %t %T' c* b* s p q
         timeout 60 sh -c 'echo through the fifo >p & cat p'; echo x >c1_3; head -c 3 c1_5 | od -c";
    let before = format!(
        r#"set -- 0,0 0,1 1,3 1,5 255,255 255,256 256,0 511,262143 511,262144 512,1 4095,1048575
           for n; do mknod c${{n%,*}}_${{n#*,}} c ${{n%,*}} ${{n#*,}} 2>&1 || echo $?
             mknod b${{n%,*}}_${{n#*,}} b ${{n%,*}} ${{n#*,}} 2>&1 || echo $?; done
           mkfifo -m 640 p; mknod q p; chown 5:6 q
           perl -MSocket -e 'alarm 60; socket(my $s, PF_UNIX, SOCK_STREAM, 0) or die $!;
             bind($s, sockaddr_un("s")) or die "bind: $!"; listen($s, 1) or die $!;
             unless (fork) {{ socket(my $c, PF_UNIX, SOCK_STREAM, 0) or die $!;
               connect($c, sockaddr_un("s")) or die "connect: $!"; syswrite $c, "met"; exit }}
             accept(my $c, $s) or die $!; print <$c>, "\n"; wait;
             bind($s, sockaddr_un("s")) or print "again: $!\n"'
           {look}"#
    );
    // Nobody listens at the socket any more.
    let after = format!(
        "{look}; perl -MSocket -e 'socket(my $c, PF_UNIX, SOCK_STREAM, 0) or die $!;
           connect($c, sockaddr_un(\"s\")) or print \"$!\\n\"'; rm c* b* s p q; ls"
    );
    let [before, after] = beside_the_kernel(&image, kind, &before, &after);
    assert!(before.contains("met\n") && before.contains("through the fifo"), "{before}");
    assert!(after.contains("b511_262143 block special file"), "{after}");
    assert_eq!(after.contains("fff fffff"), kind != "xfs", "XFS has 9 and 18 bits: {after}");
    assert!(after.contains("Connection refused"), "{after}");
}

/// fcntl(2)'s locks in Perl: `lk(file, command, type, start, length)` answers the lock's fields and
/// undef with `$!` where it is refused.
const LOCKS: &str = r#"use Fcntl qw(:DEFAULT :flock); use POSIX (); alarm 100; $| = 1;
    sub lk { my ($f, $cmd, $type, $start, $len) = @_;
      my $l = pack("s s x4 q q i x4", $type, 0, $start, $len, 0);
      my $r = fcntl($f, $cmd, $l); return undef unless defined $r;
      my ($t, $w, $s, $n, $p) = unpack("s s x4 q q i", $l); return "$t $s $n " . ($p <=> 0) }
    sub say_of { my ($what, $r) = @_; print "$what: ", defined $r ? $r : "$!", "\n" }
    sub opened { sysopen(my $f, $_[0], O_RDWR | O_CREAT) or die $!; $f }
    sub child(&) { my $body = shift; my $pid = fork; return $pid if $pid;
      $body->(); POSIX::_exit(0) }
    sub reap { waitpid $_[0], 0 }
    use constant { OFD_GET => 36, OFD_SET => 37, OFD_WAIT => 38 };"#;

/// POSIX locks belong to processes, those of open file descriptions to these: ranges, who is in the
/// way, what closing releases; who waits gets the lock when its holder dies.
fn record_locks_between_processes(kind: &str) {
    let place = place();
    let image = image(place.path(), kind, 16 << 20);
    let script = r#"
    my $f = opened("f"); say_of("mine", lk($f, F_SETLK, F_WRLCK, 10, 10));
    say_of("mine too", lk($f, F_SETLK, F_RDLCK, 40, 0));
    reap(child { my $g = opened("f");
      say_of("below", lk($g, F_SETLK, F_WRLCK, 0, 10));
      say_of("across", lk($g, F_SETLK, F_WRLCK, 5, 6));
      say_of("who", lk($g, F_GETLK, F_WRLCK, 0, 0));
      say_of("read", lk($g, F_SETLK, F_RDLCK, 1 << 40, 9));
      say_of("write", lk($g, F_SETLK, F_WRLCK, 45, 1));
      say_of("free", lk($g, F_GETLK, F_WRLCK, 25, 5));
      say_of("inherited", lk($f, F_SETLK, F_WRLCK, 12, 1)) });
    close opened("f"); # Closing any of the file's descriptors releases the process' locks.
    reap(child { say_of("closed", lk(opened("f"), F_SETLK, F_WRLCK, 0, 0)) });

    pipe(my $r, my $w); my $holder = child { my $g = opened("f"); lk($g, F_SETLK, F_WRLCK, 0, 0);
      syswrite $w, "x"; sleep 100 }; sysread $r, my $x, 1;
    my $waiter = child { my $g = opened("f"); say_of("taken", lk($g, F_SETLK, F_WRLCK, 3, 1));
      syswrite $w, "x"; say_of("waited", lk($g, F_SETLKW, F_WRLCK, 3, 1)) };
    sysread $r, $x, 1; select(undef, undef, undef, 0.1); kill "KILL", $holder;
    reap($holder); reap($waiter);

    my $a = opened("f"); lk($a, F_SETLK, F_WRLCK, 0, 1); # Either of the two is told.
    my $other = child { lk($a, F_SETLK, F_WRLCK, 1, 1); syswrite $w, "x";
      my $got = lk($a, F_SETLKW, F_WRLCK, 0, 1); say_of("deadlock", $got) unless defined $got };
    sysread $r, $x, 1; my $got = lk($a, F_SETLKW, F_WRLCK, 1, 1);
    say_of("deadlock", $got) unless defined $got; lk($a, F_SETLK, F_UNLCK, 0, 0); reap($other);

    my $p = opened("g"); my $q = opened("g"); say_of("one", lk($p, OFD_SET, F_WRLCK, 0, 100));
    say_of("other", lk($q, OFD_SET, F_RDLCK, 50, 1));
    say_of("posix", lk($q, F_SETLK, F_RDLCK, 50, 1));
    say_of("who", lk($q, OFD_GET, F_WRLCK, 0, 0)); close opened("g");
    say_of("still", lk($q, OFD_SET, F_RDLCK, 50, 1));
    my $keeper = child { sysread $r, $x, 1 }; close $p; # The child has the description open, too.
    say_of("the child's", lk($q, OFD_SET, F_RDLCK, 50, 1));
    my $late = child { say_of("late", lk($q, OFD_WAIT, F_WRLCK, 0, 0)) };
    select(undef, undef, undef, 0.1); kill "KILL", $keeper; reap($keeper); reap($late);
    reap(child { flock($q, LOCK_EX) });
    say_of("flock apart", flock(opened("g"), LOCK_EX | LOCK_NB) ? 1 : undef);
    say_of("flock shared by a child", flock($q, LOCK_UN) ? 1 : undef);
    sysopen(my $o, "g", O_RDONLY) or die $!;
    say_of("read only", lk($o, F_SETLK, F_WRLCK, 0, 1));"#;
    let script = format!("cat >$outside/l.pl <<'END'\n{LOCKS}\n{script}\nEND\nperl $outside/l.pl");
    let [said, _] = beside_the_kernel(&image, kind, &script, &script);
    for line in [
        "across: Resource temporarily unavailable\n",
        "who: 1 10 10 1\n",
        "closed: 1 0 0 0\n",
        "taken: Resource temporarily unavailable\nwaited: 1 3 1 0\n",
        "deadlock: Resource deadlock avoided\n",
        "the child's: Resource temporarily unavailable\nlate: 1 0 0 0\n",
    ] {
        assert!(said.contains(line), "{line} is not in\n{said}");
    }
}

/// The limit of the size of a process' files: what is below it is written, then SIGXFSZ and EFBIG.
fn a_limit_of_file_size_is_told_by_write(kind: &str) {
    let place = place();
    let image = image(place.path(), kind, 16 << 20);
    let script = r#"ulimit -f 20
        perl -e '$SIG{XFSZ} = sub { print "signal\n" }; open my $f, "+>", $ARGV[0] or die $!;
          for (9000, 1000, 1000, 1) { my $n = syswrite $f, "x" x $_; print $n // $!, "\n" }
          truncate($f, 10241) or print "truncate: $!\n"; truncate($f, 10240) or die $!;
          print -s $f, "\n"' f
        sh -c 'exec head -c 100000 /dev/zero' >g || echo $?; stat -c %s f g"#;
    let [said, _] = beside_the_kernel(&image, kind, script, "stat -c %s f g; rm f g");
    let told = "9000\n1000\n240\nsignal\nFile too large\nsignal\ntruncate: File too large\n10240\n";
    assert!(said.starts_with(told), "{said}");
    assert!(said.contains("153\n10240\n10240\n"), "{said}");
}

/// What statfs(2) tells of space and inodes: before and after writing, after a remount, after
/// removing. Free space counts from the beginning: how much of it the kernel keeps for itself is
/// not the format's.
fn statfs_counts_as_the_kernels(kind: &str) {
    let place = place();
    let image = image(place.path(), kind, 600 << 20);
    let look = r#"look() { set -- $(stat -f -c '%S %b %f %a %c %d %l' .)
           test -e $outside/begin || echo "f=$3 a=$4" >$outside/begin; . $outside/begin
           echo "$1 $2 free $(($3-f)) $(($4-a)) inodes $5 $6 names $7"; }; look"#;
    let before = format!(
        "{look}; mkdir d; for i in $(seq 300); do echo $i >d/$i; done
         head -c 9000000 /dev/zero >large; truncate -s 1T sparse; fallocate -l 5M allocated
         head -c 70000 /dev/zero | dd of=sparse bs=70000 seek=100000 conv=notrunc status=none
         sync . large sparse allocated d d/*; look"
    );
    let after = format!("{look}; rm -r d large sparse allocated; sync .");
    let [full, still] = beside_the_kernel(&image, kind, &before, &after);
    let [freed, _] = beside_the_kernel(&image, kind, look, "");
    assert_eq!(full.lines().last(), still.lines().next());
    let counts = |line: Option<&str>| line.map(|line| line.to_owned());
    assert_ne!(counts(full.lines().next()), counts(full.lines().last()));
    // XFS keeps chunks of inodes that a directory or a file had.
    assert!(
        kind == "xfs" || counts(full.lines().next()) == counts(freed.lines().next()),
        "{freed}"
    );
}

/// A file has as many names, and a directory as many directories, as its format counts: ext4 counts
/// links to 65,000, those of indexed directories no further. By default most of ext4's are only
/// said to be there.
fn links_to_the_limit(kind: &str) {
    const MOST: u32 = 65_000;
    let place = place();
    let all = scale() >= 10;
    // Every directory takes an inode.
    let image = image(place.path(), kind, if all { 2 << 30 } else { 64 << 20 });
    let start = if all { 2 } else { MOST - 10 };
    if kind == "ext4" {
        let counts = format!("sif f links_count {start}\nsif d links_count {start}\n");
        let make = "write /dev/null f\nmkdir d\n";
        judge::debugfs(&image, true, &(make.to_owned() + &counts));
    }
    let tries = if all { MOST } else { 20 };
    let links = format!(
        r#"test -e d || mkdir d; test -e f || touch f
           cd d; seq -f 'name %g' 300 | xargs -d '\n' touch; cd ..
           perl -e 'sub told {{ print "@_: $!\n" if $!{{EMLINK}} && !$n++ }} use Errno;
             for (1..{tries}) {{ link("f", "l$_") or told("link", $_) }} $n = 0;
             for (1..{tries}) {{ mkdir "d/$_" or told("mkdir", $_) }}'; stat -c %h f d"#
    );
    let undo = format!(
        r#"stat -c %h f d; perl -e 'for (1..{tries}) {{ unlink "l$_"; rmdir "d/$_" }}'
           rm d/name*; ls d
           stat -c %h f d"#
    );
    let [before, after] = both_say(&image, kind, &links, &undo);
    let full = kind == "ext4";
    assert_eq!(before.contains("link 1"), full && !all, "{before}");
    assert_eq!(before.contains("Too many links"), full, "{before}");
    assert_eq!(before.contains(&format!("{MOST}\n")), full, "{before}");
    assert_eq!(before.ends_with("\n1\n") && after.ends_with("\n1\n"), full, "{before}{after}");
    if full {
        judge::debugfs(&image, true, "sif f links_count 1\nsif d links_count 2\n");
    }
    check(&image);
}

on_each_format!(
    times_of_all_years,
    links_to_the_limit,
    symbolic_links_of_all_lengths,
    devices_sockets_and_fifos,
    record_locks_between_processes,
    a_limit_of_file_size_is_told_by_write,
    statfs_counts_as_the_kernels,
);
