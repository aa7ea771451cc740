use super::source::Source;
use super::status::{State, state};
use super::*;

fn states(dir: &Path) -> Vec<(String, State)> {
    let source = Source::open(dir).unwrap();
    catalog().unwrap().iter().map(|p| (p.id.clone(), state(p, &source))).collect()
}

fn of(dir: &Path, id: &str) -> State {
    states(dir).into_iter().find(|(i, _)| i == id).unwrap().1
}

/// Whole, half and unreadable sources of two functions; a comment or a string decides nothing.
#[test]
fn what_a_source_shows() {
    let dir = tempfile::tempdir().unwrap();
    let write = |text: &str| std::fs::write(dir.path().join("rocket_job.c"), text).unwrap();
    let tasks = |body: &str| format!("static int\nrocket_copy_tasks(void)\n{{ {body} }}\n");
    let submit = |body: &str| format!("int rocket_ioctl_submit(void) {{ {body} }}\n");
    let (bare, good) = ("copy_from_user(a);", "copy_struct_from_user (a);");
    let call = "ret = rocket_ioctl_submit_job(a);";
    for (first, second, want) in [
        (tasks(bare), submit("rocket_ioctl_submit_job(a);"), State::Missing),
        (tasks(good), submit(&format!("{good} {call}")), State::Applied),
        (
            tasks(&format!("/* x */ {good}\n")),
            submit(&format!("\t{good}\n\n{call}")),
            State::Applied,
        ),
        (tasks(good), submit("rocket_ioctl_submit_job(a);"), State::Conflicts),
        (tasks(&format!("// {good}\n{bare}")), submit(&format!("{good} {call}")), State::Conflicts),
        (tasks(good), String::new(), State::Unknown),
        (tasks(good), "int rocket_ioctl_submit(void) { if (a) {".to_owned(), State::Unknown),
    ] {
        write(&format!("{first}{second}"));
        assert_eq!(of(dir.path(), "extensible-submit"), want, "{first}{second}");
    }
}

/// The mechanisms that the public series is described by (kernel-and-uapi C.2), in other words than
/// ours; and mainline's.
#[test]
fn the_same_matter_by_other_hands() {
    let run = |body: &str| format!("static struct dma_fence *rocket_job_run(void) {{ {body} }}\n");
    let irq = |body: &str| format!("static void rocket_job_handle_irq(void) {{ {body} }}\n");
    let attach = "ret = iommu_attach_group(job->domain->domain, core->iommu_group);";
    let detach = "iommu_detach_group(NULL, iommu_group_get(core->dev));";
    let kept = format!(
        "if (core->mapped != job->domain) {{ if (core->mapped) {{ {detach} put(core->mapped); }} {attach} }}"
    );
    let reset = |body: &str| format!("static void\nrocket_reset(int a)\n{{\n{body}\n}}\n");
    let stop = "rocket_pc_writel(core, OPERATION_ENABLE, 0x0);";
    let guarded = "scoped_guard(mutex, &core->job_lock) { done(core); }";
    let kick = |n: &str| {
        format!("static void rocket_job_hw_submit(void) {{ PC_TASK_CON_TASK_NUMBER({n}); }}\n")
    };
    let job = |field: &str| format!("struct drm_rocket_job {{ __u64 tasks; {field} }};\n");
    let file = |field: &str| format!("struct rocket_file_priv {{ {field} }};\n");
    let free = |body: &str| format!("void rocket_gem_bo_free(void) {{ {body} }}\n");
    let tasks = |body: &str| format!("static int rocket_copy_tasks(void) {{ {body} }}\n");
    for (id, source, want) in [
        ("keep-attached", run(&kept) + &irq("signal();"), State::Applied),
        ("keep-attached", run(attach) + &irq(detach), State::Missing),
        ("keep-attached", run(attach) + &irq("signal();"), State::Conflicts),
        ("domain-allocator", file("int domain;") + &free("drm_mm_remove_node(a);"), State::Applied),
        (
            "domain-allocator",
            file("struct drm_mm mm;") + &free("bo->driver_priv->mm;"),
            State::Missing,
        ),
        ("task-array", tasks("fail: return ret;"), State::Upstream),
        ("task-array", tasks("fail: kvfree(rjob->tasks); return ret;"), State::Missing),
        ("batched-submit", kick("job->batched ? n : 1") + &job("__u32 flags;"), State::Applied),
        ("batched-submit", kick("1") + &job(""), State::Missing),
        ("batched-submit", kick("1") + &job("__u32 flags;"), State::Conflicts),
        (
            "reset-before-detach",
            reset(&format!("rocket_core_reset(core);\n{detach}")),
            State::Applied,
        ),
        (
            "reset-before-detach",
            reset(&format!("{detach}\nrocket_core_reset(core);")),
            State::Missing,
        ),
        (
            "completion-lock",
            irq(&format!("mutex_lock(&core->job_lock); {stop} next();")),
            State::Applied,
        ),
        ("completion-lock", irq(&format!("{stop} {guarded}")), State::Missing),
        (
            "clocks-by-name",
            "static const char * const ids[] = { \"aclk\", \"hclk\" };".to_owned(),
            State::Applied,
        ),
        ("clocks-by-name", "// \"aclk\"\n".to_owned(), State::Missing),
        ("clock-lever", "static ulong rocket_npu_clk_hz;".to_owned(), State::Applied),
        ("voltage", "err = regulator_set_voltage (r, lo, hi);".to_owned(), State::Applied),
    ] {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("rocket_job.c"), &source).unwrap();
        assert_eq!(of(dir.path(), id), want, "{id}: {source}");
    }
}

#[test]
fn a_folder_without_a_driver_is_an_error_with_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let error = Source::open(dir.path()).unwrap_err().to_string();
    assert!(error.contains(&dir.path().display().to_string()) && error.contains("kernel tree"));
}

/// Case A21: the same double free unmended, and mended in two people's words: neither is a conflict, and neither
/// is ours.
#[test]
fn a_patch_that_is_in_already_is_upstream() {
    let driver = |tail: &str| {
        format!(
            "static int\nrocket_copy_tasks(struct drm_device *dev, struct rocket_job *rjob)\n{{\n\
             \trjob->tasks = kvmalloc_array(n, sizeof(*t), GFP_KERNEL);\n\tif (copy_from_user(&t, p, s)) {{\n\
             \t\tret = -EFAULT;\n\t\tgoto fail;\n\t}}\n\treturn 0;\n\nfail:\n{tail}\treturn ret;\n}}\n"
        )
    };
    for (tail, want) in [
        ("\tkvfree(rjob->tasks);\n", State::Missing),
        // The pointer is forgotten, so that the job's end frees nothing.
        ("\tkvfree(rjob->tasks);\n\trjob->tasks = NULL;\n", State::Upstream),
        // The job's end alone frees it.
        ("\t/* rocket_job_cleanup() does kvfree() */\n", State::Upstream),
    ] {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("rocket_job.c"), driver(tail)).unwrap();
        assert_eq!(of(dir.path(), "task-array"), want, "{tail}");
    }
}

#[test]
fn tables_have_eighty_columns() {
    let all = catalog().unwrap();
    for state in [None, Some(State::Conflicts)] {
        let lines: Vec<Line<'_>> = all.iter().map(|p| line(p, state)).collect();
        let text = table(&lines);
        assert!(text.lines().all(|l| l.chars().count() <= 80), "{text}");
        assert!(text.lines().count() >= all.len() && text.contains("keep-attached"));
    }
}

#[test]
fn releases_are_names() {
    let globals =
        Globals { root: "/".into(), json: false, quiet: false, color: crate::ui::Color::Never };
    let release = |text: &str| release(&Kernel { release: Some(text.into()) }, &globals);
    assert_eq!(release("7.3.4-arm64").unwrap(), "7.3.4-arm64");
    for bad in ["", "../../etc", "a/b", ".", ".."] {
        assert!(release(bad).is_err(), "{bad}");
    }
}
