use super::*;
use crate::change::{Options, UndoOptions, carry_out, undo};

const JOB: &str = "static int\nrocket_copy_tasks(void)\n{\n\tret = 0;\n\treturn ret;\nfail:\n\tkvfree(rjob->tasks);\n\treturn ret;\n}\n\nint other(void)\n{\n\treturn 1;\n}\n";

const PATCH: &str = "Subject: one\n\n--- a/drivers/accel/rocket/rocket_job.c\n+++ b/drivers/accel/rocket/rocket_job.c\n@@ -11,4 +11,4 @@ int\n int other(void)\n {\n-\treturn 1;\n+\treturn 2;\n }\n--- /dev/null\n+++ b/drivers/accel/rocket/rocket_new.c\n@@ -0,0 +1 @@\n+int added;\n";

fn catalog() -> Vec<Patch> {
    let one = "- id: other-is-two\n  title: t\n  tier: required\n  probe:\n    - { in: other, has: 'return 2' }\n";
    serde_yaml::from_str(one).unwrap()
}

struct Fixture(tempfile::TempDir);

impl Fixture {
    fn new(job: &str) -> Fixture {
        let dir = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        put("tree/drivers/accel/rocket/rocket_job.c", job);
        put("patches/series/series", "0001-other-is-two.patch\n");
        put("patches/series/0001-other-is-two.patch", PATCH);
        let variant = "--- a/drivers/accel/rocket/rocket_job.c\n+++ b/drivers/accel/rocket/rocket_job.c\n@@ -13 +13 @@\n-\treturn OLD;\n+\treturn 1;\n";
        put("patches/variants/1.0-mainline.patch", variant);
        Fixture(dir)
    }

    fn tree(&self) -> Tree {
        Tree::open(&self.0.path().join("tree")).unwrap()
    }

    fn plan(&self) -> Result<Planned> {
        plan(&self.tree(), &Series::read(&self.0.path().join("patches")).unwrap(), &catalog())
    }

    fn job(&self) -> String {
        let path = self.0.path().join("tree/drivers/accel/rocket/rocket_job.c");
        std::fs::read_to_string(path).unwrap()
    }
}

const YES: Options = Options { dry_run: false, yes: true, emit: None };

#[test]
fn what_is_missing_goes_in_and_comes_out_again() {
    let f = Fixture::new(JOB);
    let planned = f.plan().unwrap();
    assert_eq!((planned.applied.len(), planned.variant.as_deref()), (1, None));
    let tree = f.tree();
    let new = tree.dir.join("drivers/accel/rocket/rocket_new.c");
    // Shown first: nothing changes.
    let dry = Options { dry_run: true, ..YES };
    carry_out(&tree.dir, &changes(&tree, &planned), &dry, &mut std::io::sink()).unwrap();
    assert!(f.job() == JOB && !new.exists());
    carry_out(&tree.dir, &changes(&tree, &planned), &YES, &mut std::io::sink()).unwrap();
    assert_eq!(f.job(), JOB.replace("return 1", "return 2"));
    assert!(new.exists());
    // Again: nothing to do.
    let again = f.plan().unwrap();
    assert!(again.applied.is_empty() && again.files.is_empty(), "{again:?}");
    let options = UndoOptions {
        plan: Some(super::super::SOURCE_PLAN.into()),
        yes: true,
        ..UndoOptions::default()
    };
    undo(&tree.dir, &options, &mut std::io::sink()).unwrap();
    assert!(f.job() == JOB && !new.exists());
}

#[test]
fn an_older_base_gets_its_variant_first() {
    let f = Fixture::new(&JOB.replace("return 1", "return OLD"));
    let planned = f.plan().unwrap();
    assert_eq!(planned.variant.as_deref(), Some("1.0-mainline.patch"));
    assert!(planned.files["drivers/accel/rocket/rocket_job.c"].contains("return 2"));
    // It is missing also where the series would go in without it.
    let variant = "--- a/drivers/accel/rocket/rocket_job.c\n+++ b/drivers/accel/rocket/rocket_job.c\n@@ -4 +4 @@\n-\tret = 0;\n+\tret = -1;\n";
    let f = Fixture::new(JOB);
    std::fs::write(f.0.path().join("patches/variants/1.0-mainline.patch"), variant).unwrap();
    let text = &f.plan().unwrap().files["drivers/accel/rocket/rocket_job.c"];
    assert!(text.contains("ret = -1") && text.contains("return 2"), "{text}");
}

/// The patch, the file and the hunk are named, and no file is touched.
#[test]
fn a_conflict_is_named_and_nothing_is_half_done() {
    let f = Fixture::new(&JOB.replace("return 1", "return 7"));
    let error = f.plan().unwrap_err().to_string();
    for word in ["other-is-two", "rocket_job.c", "@@ -11,4 +11,4 @@", "nothing was changed"] {
        assert!(error.contains(word), "{word}: {error}");
    }
    // The second file of the patch is in the way: the first stays as it is.
    let f = Fixture::new(JOB);
    std::fs::write(f.tree().dir.join("drivers/accel/rocket/rocket_new.c"), "mine\n").unwrap();
    assert!(f.plan().unwrap_err().to_string().contains("rocket_new.c"));
    assert_eq!(f.job(), JOB);
}

/// The same matter in other words is there, and no conflict.
#[test]
fn what_is_there_in_other_words_is_left_alone() {
    let f = Fixture::new(&JOB.replace("\treturn 1;", "\tint x;\n\n\treturn 2; /* so */"));
    let planned = f.plan().unwrap();
    assert_eq!((planned.skipped.len(), planned.files.len()), (1, 0));
}

/// A patch that fits and does not do what it is for is not applied.
#[test]
fn the_result_is_looked_at() {
    let f = Fixture::new(JOB);
    let wrong = PATCH.replace("return 2", "return 3");
    std::fs::write(f.0.path().join("patches/series/0001-other-is-two.patch"), wrong).unwrap();
    assert!(f.plan().unwrap_err().to_string().contains("other-is-two"));
}

#[test]
fn a_folder_of_files_alone() {
    let f = Fixture::new(JOB);
    let flat = Tree::open(&f.0.path().join("tree/drivers/accel/rocket")).unwrap();
    let series = Series::read(&f.0.path().join("patches")).unwrap();
    let planned = plan(&flat, &series, &catalog()).unwrap();
    assert_eq!(planned.files.keys().collect::<Vec<_>>(), ["rocket_job.c", "rocket_new.c"]);
    assert!(Series::read(f.0.path()).unwrap_err().to_string().contains("--patches"));
}
