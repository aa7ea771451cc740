use super::*;

#[test]
fn least_and_middle() {
    let of =
        |times: &[u64]| Spread::of(times.to_vec()).map(|s| (s.repetitions, s.min_ns, s.median_ns));
    assert_eq!(of(&[9, 1, 5]), Some((3, 1, 5)));
    assert_eq!(of(&[9, 1, 5, 6]), Some((4, 1, 5)));
    assert_eq!(of(&[7]), Some((1, 7, 7)));
    assert_eq!(of(&[]), None);
}

/// What could not be seen is null with a reason, and not 0.
#[test]
fn a_clock_that_nobody_may_see() {
    let clock = seen(vec![Err("denied".into()), Err("denied".into())]);
    assert_eq!((clock.least.value, clock.least.why.as_deref()), (None, Some("denied")));
    let clock = seen(vec![Ok(600), Err("x".into()), Ok(200)]);
    assert_eq!((clock.least.value, clock.most.value, clock.samples), (Some(200), Some(600), 2));
    assert!(clock.least.why.is_none());
}

fn simulated(format: Format, shape: &str) -> (Product, Device) {
    let device = quick(Device::Sim(SimBoard::default()), false);
    let npu = Npu::open(device.board(), Options::default()).unwrap();
    let shape = shape.parse().unwrap();
    (gemm::measure(&npu, &device, format, shape, 2).unwrap(), device)
}

/// The model's time and count, and no measured time: this machine's speed says nothing.
#[test]
fn a_simulated_board_has_modelled_times_and_exact_counts() {
    for format in Format::ALL {
        let (p, _) = simulated(*format, "64x512x256");
        let (again, _) = simulated(*format, "64x512x256");
        assert!(p.measured.is_none() && p.modelled_ns.is_some_and(|ns| ns > 0), "{p:?}");
        assert_eq!(
            (p.modelled_ns, p.dma_bytes, p.jobs),
            (again.modelled_ns, again.dma_bytes, again.jobs)
        );
        // The work of the definition, by hand; 16 bits are four products of bytes.
        let times = if *format == Format::Int16 { 4 } else { 1 };
        assert!(p.executed_macs >= times * 64 * 512 * 256, "{p:?}");
        let gops = 2.0 * (64 * 512 * 256) as f64 / p.modelled_ns.unwrap() as f64;
        assert!((p.gops.unwrap() - gops).abs() < 1e-9, "{p:?}");
        // Both operands are read and the result is written at least once.
        assert!(p.dma_bytes.unwrap() > 64 * 256, "{p:?}");
    }
}

/// The clock is that of the cost model: half of it takes longer.
#[test]
fn modelled_times_follow_the_clock() {
    let at = |clock_hz| {
        let device = Device::Sim(SimBoard::new(Config { clock_hz, ..Config::default() }));
        let npu = Npu::open(device.board(), Options::default()).unwrap();
        let shape = "64x1024x256".parse().unwrap();
        gemm::measure(&npu, &device, Format::Fp16, shape, 1).unwrap().modelled_ns.unwrap()
    };
    assert!(at(200_000_000) > at(600_000_000));
}

#[test]
fn text_has_its_columns() {
    let (p, device) = simulated(Format::Int8, "64x512x256");
    let npu = Npu::open(device.board(), Options::default()).unwrap();
    let submit = gemm::submit(&device, 2).unwrap();
    let (_, clock) = with_clock(&device, || ());
    let o = describe(&device, &npu, clock, vec![p], submit, host::measure(1));
    let text = text(&o);
    assert!(text.lines().all(|l| l.chars().count() <= 80), "{text}");
    assert!(text.contains("modelled") && text.contains("600 MHz"), "{text}");
    let json = serde_json::to_value(&o).unwrap();
    assert_eq!((&json["schema"], &json["simulated"]), (&1.into(), &true.into()));
    assert!(json["products"][0]["measured"].is_null());
    assert!(o.host.iter().all(|b| b.gb_per_s > 0.0), "{:?}", o.host);
}
