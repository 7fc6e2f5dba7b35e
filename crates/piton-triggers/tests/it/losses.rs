//! What commands destroy: a table of commands with the paths, the kind of loss and the extent.

use std::path::Path;

use piton_triggers::{Loss, LossExtent, LossKind, Run, Verdict, analyse, recipes};

fn look(command: &str) -> Verdict {
    analyse(command, Path::new("/w"), Some(Path::new("/home/u")))
}

/// Formats a loss: `-` for a name that goes, `!` for a file that is written in place; then the path and the extent.
fn shown(loss: &Loss) -> String {
    let kind = if loss.kind == LossKind::Unlinked { '-' } else { '!' };
    let extent = match &loss.extent {
        LossExtent::File => String::new(),
        LossExtent::Tree => " tree".to_owned(),
        LossExtent::Below { names, is_deep } => {
            format!(" below {}{}", names.as_deref().unwrap_or("*"), if *is_deep { " deep" } else { "" })
        }
        LossExtent::Untracked => " untracked".to_owned(),
        LossExtent::Onto { sources, .. } => {
            format!(" onto {}", sources.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(" "))
        }
        _ => panic!("an extent without a name: {loss:?}"),
    };
    let pattern = if loss.is_pattern { " pattern" } else { "" };
    format!("{kind}{}{extent}{pattern}", loss.path.display())
}

const TABLE: &[(&str, &[&str])] = &[
    ("rm x", &["-/w/x"]),
    ("rm -rf build ~/data", &["-/w/build tree", "-/home/u/data tree"]),
    ("rm -rf -- -odd", &["-/w/-odd tree"]),
    ("cd sub && rm -r x", &["-/w/sub/x tree"]),
    ("sudo env X=1 /bin/rm -R x", &["-/w/x tree"]),
    ("rm *.bin", &["-/w/*.bin pattern"]),
    ("rm -f {a,b}.o", &["-/w/a.o", "-/w/b.o"]),
    ("rm 'a*b'", &["-/w/a*b"]),
    ("rm $HOME/.config/x", &["-/home/u/.config/x"]),
    ("D=/data/x; rm -rf \"$D/y\" ${D}", &["-/data/x/y tree", "-/data/x tree"]),
    ("D=~/other; rm -rf \"$D\" $D/x", &["-/home/u/other tree", "-/home/u/other/x tree"]),
    ("D='~/other'; rm \"$D\"", &["-/w/~/other"]),
    ("D=\"a b\"; rm -r $D", &["-/w/a b tree", "-/w/a tree", "-/w/b tree"]),
    ("all=(a ~/b); rm -rf \"${all[@]}\"", &["-/w/a tree", "-/home/u/b tree"]),
    ("rm -rf a/{b,c/{d,e}}", &["-/w/a/b tree", "-/w/a/c/d tree", "-/w/a/c/e tree"]),
    ("rm run{1..3}.bin x{08..10}", &["-/w/run1.bin", "-/w/run2.bin", "-/w/run3.bin", "-/w/x08", "-/w/x09", "-/w/x10"]),
    ("rm {a..c} {x}", &["-/w/a", "-/w/b", "-/w/c", "-/w/{x}"]),
    ("rm \"$(pwd)/x\" `pwd`/y", &["-/w/x", "-/w/y"]),
    ("dd if=/dev/zero of=$HOME/x", &["!/home/u/x"]),
    ("for f in a.bin *.o; do rm \"$f\"; done", &["-/w/a.bin", "-/w/*.o pattern"]),
    ("unlink x", &["-/w/x"]),
    ("npx rimraf dist", &["-/w/dist tree"]),
    ("rimraf dist", &["-/w/dist tree"]),
    ("rmdir x", &[]),
    ("find . -name '*.log' -delete", &["-/w below *.log"]),
    ("find /data a -type f -delete", &["-/data below *", "-/w/a below *"]),
    ("find . -name a -o -name b -delete", &["-/w below *"]),
    ("find /data -name '*.csv' -exec rm {} +", &["-/data below *.csv"]),
    ("find /data -name '*.csv' -exec shred {} \\;", &["!/data below *.csv"]),
    ("find /data -name '*.csv' | xargs rm -f", &["-/data below *.csv"]),
    ("find /data -name '*.csv' -print0 | xargs -0 -I{} rm {}", &["-/data below *.csv"]),
    ("find . -name '*.log' -print", &[]),
    ("find . -type d -name 'run*' -exec rm -rf {} +", &["-/w below run* deep"]),
    ("find . -type d -name 'run*' -print0 | xargs -0 rm -rf", &["-/w below run* deep"]),
    ("mv big.bin old.bin && : > old.bin", &["-/w/old.bin onto /w/big.bin", "!/w/old.bin", "!/w/big.bin tree"]),
    ("mv a b; truncate -s 0 b", &["-/w/b onto /w/a", "!/w/b", "!/w/a tree"]),
    ("RM='rm -rf'; $RM data", &["-/w/data tree"]),
    ("RM=rm; sudo \"$RM\" -r data", &["-/w/data tree"]),
    ("OPTS=-rf; rm $OPTS data", &["-/w/-rf tree", "-/w/data tree"]),
    ("/bin/bash <<'EOF'\nrm -rf /data/x\nEOF\n", &["-/data/x tree"]),
    ("mv a b", &["-/w/b onto /w/a"]),
    ("mv a b c dir/", &["-/w/dir onto /w/a /w/b /w/c"]),
    ("mv -t dir a b", &["-/w/dir onto /w/a /w/b"]),
    ("mv -n a b", &[]),
    ("mv a b /dev/null", &["-/w/a tree", "-/w/b tree"]),
    ("cp a b", &["!/w/b onto /w/a"]),
    ("cp -r src/* /data", &["!/data onto /w/src/*"]),
    ("cp -n a b", &[]),
    ("cp --remove-destination a b", &["-/w/b onto /w/a"]),
    ("cp /dev/null b", &["!/w/b onto /dev/null"]),
    ("cp -r other/. .", &["!/w onto /w/other/* /w/other/.*"]),
    ("cp -a . /data", &["!/data onto /w/* /w/.*"]),
    ("mv data ~/trash; rm -rf ~/trash", &["-/home/u/trash onto /w/data", "-/home/u/trash tree", "-/w/data tree"]),
    ("mv a t && rm -r t/a/b", &["-/w/t onto /w/a", "-/w/t/a/b tree", "-/w/a/b tree"]),
    ("mv a b && rm c", &["-/w/b onto /w/a", "-/w/c"]),
    ("install -m 644 a /data/b", &["-/data/b onto /w/a"]),
    ("ln -s a b", &[]),
    ("ln -sf a b", &["-/w/b onto /w/a"]),
    ("trash a ~/b", &["-/w/a tree", "-/home/u/b tree"]),
    ("trash-put a && gio trash b", &["-/w/a tree", "-/w/b tree"]),
    ("gio info a", &[]),
    ("Remove-Item -Recurse -Force a", &["-/w/a tree"]),
    ("zip -qrm x.zip a b", &["-/w/a tree", "-/w/b tree"]),
    ("fallocate -p -o 0 -l 4096 x", &["!/w/x"]),
    ("fallocate -l 1G x", &[]),
    ("ffmpeg -y -i a.mp4 -c copy b.mp4", &["!/w/b.mp4"]),
    ("tar czf x.tgz --remove-files a b", &["!/w/x.tgz", "-/w/a tree", "-/w/b tree"]),
    ("tar -C /data -c --remove-files -f x.tar a", &["!/w/x.tar", "-/data/a tree"]),
    ("tar cf - a | gzip > x.tgz", &["!/w/x.tgz"]),
    ("cp -rT a b", &["!/w/b onto /w/a/* /w/a/.*"]),
    ("rsync -a src/ other /data", &["-/data onto /w/src/* /w/src/.* /w/other"]),
    ("scp -q host:/x/big.bin host:y .", &["!/w onto /x/big.bin /w/y"]),
    ("rsync -a --delete src/ /data/dst/", &["-/data/dst below *"]),
    ("rsync -a --delete --inplace src/ dst", &["!/w/dst below *"]),
    ("rsync -a --delete src/ host:dst", &[]),
    ("echo x > big.bin", &["!/w/big.bin"]),
    ("> big.bin", &["!/w/big.bin"]),
    (": >| big.bin", &["!/w/big.bin"]),
    ("make &> log", &["!/w/log"]),
    ("echo x >> big.bin", &[]),
    ("cat < x", &[]),
    ("echo x > /dev/null", &[]),
    ("truncate -s 0 a b", &["!/w/a", "!/w/b"]),
    ("shred -u -n 1 x", &["!/w/x"]),
    ("dd if=/dev/zero of=disk.img bs=1M", &["!/w/disk.img"]),
    ("echo x | tee a", &["!/w/a"]),
    ("echo x | tee -a a", &[]),
    ("sort x | sponge x", &["!/w/x"]),
    ("sed -i s/a/b/ x y", &["-/w/x", "-/w/y"]),
    ("sed -i -e s/a/b/ x", &["-/w/x"]),
    ("sed s/a/b/ x", &[]),
    ("perl -pi -e 's/a/b/' x", &["-/w/x"]),
    ("curl -o data.bin https://x", &["!/w/data.bin"]),
    ("wget -O data.bin https://x", &["!/w/data.bin"]),
    ("wget -qO- https://x/f", &[]),
    ("wget https://x/f", &[]),
    ("curl -sO https://x/y/big.bin?z=1", &["!/w/big.bin"]),
    ("curl -fsSLO -H 'a: o' https://x/f", &["!/w/f"]),
    ("curl --output-dir d -O https://x/f --url https://x/g", &["!/w/d/f", "!/w/d/g"]),
    ("curl -so a --output b https://x/f", &["!/w/a", "!/w/b"]),
    ("curl -s https://x/f", &[]),
    ("sort -k 2 -o out in", &["!/w/out"]),
    ("sqlite3 app.db 'delete from users'", &["!/w/app.db"]),
    ("sqlite3 app.db 'select 1'", &[]),
    ("git clean -fdx", &["-/w untracked"]),
    ("git clean -fX -- data", &["-/w/data untracked"]),
    ("git clean -n", &[]),
    ("git -C sub clean -fd", &["-/w/sub untracked"]),
    ("git clean -fdxq -e .env", &["-/w untracked"]),
    ("git clean -fdxq -enode_modules", &["-/w untracked"]),
    ("git clean -fdxqe keep -- data", &["-/w/data untracked"]),
    ("git clean -fdx --exclude .env", &["-/w untracked"]),
    ("git clean -fdx --exclude=n data", &["-/w/data untracked"]),
    ("git clean -fdx -e \"$KEEP\" data", &["-/w/data untracked"]),
    ("git clean -e x -fdn", &[]),
    ("git clean -xfd --dry-run", &[]),
    ("git stash push -m away", &[]),
    ("git stash push -maway -u", &["-/w untracked"]),
    ("git stash -u", &["-/w untracked"]),
    ("git stash", &[]),
    ("git rm -r big", &["-/w/big tree"]),
    ("git rm --cached big", &[]),
    ("git worktree remove --force ../other", &["-/other tree"]),
    ("git checkout -- big.bin", &["-/w/big.bin tree"]),
    ("git checkout HEAD -- .", &["-/w tree"]),
    ("git checkout .", &["-/w tree"]),
    ("git checkout main", &["-/w/main tree"]),
    ("git checkout -b new origin/main", &[]),
    ("git checkout -qf main", &["-/w tree"]),
    ("git checkout -f HEAD -- big", &["-/w/big tree"]),
    ("git checkout-index -f -a", &["-/w tree"]),
    ("git switch main", &[]),
    ("git switch --discard-changes main", &["-/w tree"]),
    ("git restore ./big.bin", &["-/w/big.bin tree"]),
    ("git restore bigdata", &["-/w/bigdata tree"]),
    ("git restore .", &["-/w tree"]),
    ("git restore --staged .", &[]),
    ("git restore -S x", &[]),
    ("git restore -SW x", &["-/w/x tree"]),
    ("git restore -s HEAD~1 data", &["-/w/data tree"]),
    ("git restore --source HEAD~1 -- '*.bin'", &["-/w below *.bin"]),
    ("git restore 'data/*/x'", &["-/w/data below *"]),
    ("git restore *.bin", &["-/w/*.bin tree pattern"]),
    ("git restore . ':!keep'", &["-/w tree"]),
    ("git restore ':/'", &["-/w tree"]),
    ("git reset --hard HEAD~1", &["-/w tree"]),
    ("git reset -q HEAD x.txt", &[]),
    ("git rm -r --dry-run big", &[]),
    ("bash -c 'rm -rf /data/x'", &["-/data/x tree"]),
    ("(cd /data && rm x) && ls", &["-/data/x"]),
    ("true && rm a || rm b", &["-/w/a", "-/w/b"]),
    ("cargo build", &[]),
    ("ls -l; git status", &[]),
];

#[test]
fn the_table_of_losses_holds() {
    let mut wrong = Vec::new();
    for (command, want) in TABLE {
        let verdict = look(command);
        let found: Vec<String> = verdict.losses.iter().map(shown).collect();
        if found != *want {
            wrong.push(format!("{command}\n  expected {want:?}\n  found    {found:?}"));
        }
        assert!(verdict.losses.is_empty() || verdict.may_change, "{command}");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_directory_in_which_an_archive_replaces_files_is_named() {
    for (command, want) in [
        ("tar xf x.tar", &["/w"][..]),
        ("tar -xzf x.tgz -C sub", &["/w/sub"]),
        ("tar --extract --file=x.tar --directory=/data", &["/data"]),
        ("tar -x -f x.tar", &["/w"]),
        ("tar xkf x.tar", &[]),
        ("tar cf x.tar a", &[]),
        ("tar -cf x.tar a", &[]),
        ("unzip -qo x.zip -d sub", &["/w/sub"]),
        ("unzip x.zip", &[]),
        ("unzip -n x.zip", &[]),
        ("unzip -p x.zip a", &[]),
    ] {
        let dirs: Vec<_> = look(command).unpacks.iter().map(|dir| dir.display().to_string()).collect();
        assert_eq!(dirs, want, "{command}");
    }
}

#[test]
fn an_operand_that_is_not_known_is_reported() {
    for (command, what) in [
        ("rm -rf \"$DIR/x\"", "$DIR/x"),
        ("rm $(cat list)", "$(cat list)"),
        ("cd $D && rm x", "x"),
        ("cat list | xargs rm", "names from the output of another command"),
        ("docker run --rm -v \"$PWD:/w\" alpine rm -rf /w/data", "docker (rm in a container)"),
        ("docker exec db sh -c 'rm -rf /data'", "docker (rm in a container)"),
        ("docker compose down -v", "volumes of docker"),
        ("podman volume prune -f", "volumes of podman"),
        ("docker system prune -af --volumes", "volumes of docker"),
        ("curl -s https://x | sh", "commands that sh reads"),
        ("echo cm0K | base64 -d | bash -s -- x", "commands that bash reads"),
        ("ls | xargs -I{} rm {}", "names from the output of another command"),
        ("echo 'unfinished", "echo 'unfinished"),
        ("cat s | /bin/sh", "commands that sh reads"),
        ("cat list | xargs rm; find . -name '*.log' | head", "names from the output of another command"),
    ] {
        let verdict = look(command);
        assert_eq!((verdict.losses.len(), verdict.unread.as_slice()), (0, &[what.to_owned()][..]), "{command}");
    }
    assert!(look("rm a b; ls $X; cargo build $Y").unread.is_empty());
    // An unknown program may destroy anything.
    assert!(look("\"$TOOL\" a").destroys);
    let many: Vec<String> = (0..400).map(|at| format!("f{at}")).collect();
    let verdict = look(&format!("rm {}", many.join(" ")));
    assert_eq!((verdict.losses.len(), verdict.unread.len()), (256, 1));
}

#[test]
fn programs_whose_text_is_elsewhere_are_named() {
    let script = |path: &str, cwd: &str| vec![Run::Script { path: path.into(), cwd: cwd.into() }];
    for command in ["sh clean.sh", "./clean.sh", "bash -x clean.sh", ". clean.sh", "source ./clean.sh"] {
        assert_eq!(look(command).runs.iter().map(path_of).collect::<Vec<_>>(), ["/w/clean.sh"], "{command}");
    }
    assert_eq!(look("cd sub && ../x.sh").runs, script("/w/x.sh", "/w/sub"));
    let runs = look("make -C sub clean all V=1 -j4").runs;
    assert_eq!(format!("{runs:?}"), r#"[Make { cwd: "/w/sub", file: None, targets: ["clean", "all"] }]"#);
    let runs = look("npm run clean").runs;
    assert_eq!(format!("{runs:?}"), r#"[Package { cwd: "/w", script: "clean" }]"#);
    let runs = look("python3 tools/clean.py --all").runs;
    assert_eq!(
        format!("{runs:?}"),
        r#"[Foreign { program: "python3", path: Some("/w/tools/clean.py"), text: None, cwd: "/w" }]"#
    );
    let runs = look("python -c 'import shutil; shutil.rmtree(\"x\")'").runs;
    assert!(matches!(&runs[..], [Run::Foreign { path: None, text: Some(text), .. }] if text.contains("rmtree")));
    let runs = look("python3 - <<'EOF'\nimport shutil\nshutil.rmtree('x')\nEOF\n").runs;
    assert!(matches!(&runs[..], [Run::Foreign { path: None, text: Some(text), .. }] if text.contains("rmtree")));
    let runs = look("pwsh -c 'Remove-Item x'; cmd.exe /c 'rd /s /q x'").runs;
    assert!(matches!(&runs[..], [Run::Foreign { text: Some(one), .. }, Run::Foreign { text: Some(two), .. }]
        if one.contains("Remove-Item") && two.contains("rd /s")));
    for command in [".venv/bin/python -c", "python3.12 -c", "/usr/bin/env pypy3 -c"] {
        let runs = look(&format!("{command} 'import shutil; shutil.rmtree(\"x\")'")).runs;
        assert!(matches!(&runs[..], [Run::Foreign { text: Some(text), .. }] if text.contains("rmtree")), "{command}");
    }
    let runs = look("/usr/bin/python3 - <<EOF\nimport shutil\nshutil.rmtree('x')\nEOF\n").runs;
    assert!(matches!(&runs[..], [Run::Foreign { path: None, text: Some(text), .. }] if text.contains("rmtree")));
    assert_eq!(look("bash < clean.sh").runs.iter().map(path_of).collect::<Vec<_>>(), ["/w/clean.sh"]);
    assert_eq!(look("bash <<< 'rm x'").losses.iter().map(shown).collect::<Vec<_>>(), ["-/w/x"]);
    assert!(look("bash < clean.sh; bash <<< 'rm x'; bash <<EOF\nls\nEOF\n").unread.is_empty());
    assert!(look("docker run --rm x ls; docker rm x; docker compose down; docker volume ls").unread.is_empty());
    assert!(look("ls; git status; cargo build").runs.is_empty());
}

fn path_of(run: &Run) -> String {
    match run {
        Run::Script { path, .. } => path.display().to_string(),
        other => panic!("not a script: {other:?}"),
    }
}

#[test]
fn the_recipes_of_a_target_are_a_script() {
    let makefile = "OUT := build\n.PHONY: all clean\nall: x.o\n\tcc -o $@ $<\nclean: tidy\n\t@rm -rf $(OUT) \\\n\t  x.o\n\t-for f in a; do rm $$f; done\ntidy:\n\trm -f core\n";
    let script = recipes(makefile, &["clean".to_owned()]).expect("a target");
    let found: Vec<String> = look(&script).losses.iter().map(shown).collect();
    assert_eq!(found, ["-/w/core", "-/w/build tree", "-/w/x.o tree", "-/w/a"]);
    let makefile_with_names =
        "ALL = data $(OUT)\nOUT := out\nOUT += more\nclean:\n\t$(RM) -r $(ALL)\n\t$(MAKE) tidy\n\trm $(OTHER) $@ $$X\n";
    let script = recipes(makefile_with_names, &["clean".to_owned()]).expect("a target");
    let verdict = look(&script);
    let found: Vec<String> = verdict.losses.iter().map(shown).collect();
    assert_eq!(found, ["-/w/data tree", "-/w/out tree", "-/w/more tree"], "{script}");
    assert_eq!(verdict.unread, ["${OTHER}", "$@", "$X"], "{script}");
    assert!(matches!(&verdict.runs[..], [Run::Make { targets, .. }] if *targets == ["tidy"]), "{script}");
    assert_eq!(recipes(makefile, &["install".to_owned()]), None);
    assert!(recipes(makefile, &[]).is_some_and(|script| script.contains("cc -o")));
}

#[test]
fn variables_that_multiply_are_replaced_within_limits() {
    // Each variable names the next one 100 times, and the last one is empty: 100^7 replacements without a limit.
    let mut makefile: String = ["AB", "BC", "CD", "DE", "EF", "FG", "GH"]
        .map(|pair| format!("{} = {}\n", &pair[..1], format!("$({})", &pair[1..]).repeat(100)))
        .concat();
    makefile.push_str("H =\nclean:\n\trm -rf out $(A)\n");
    let script = recipes(&makefile, &["clean".to_owned()]).expect("a target");
    assert!(script.contains("rm -rf out "), "{script}");
    assert!(script.len() < 1 << 20, "{} bytes", script.len());
}
