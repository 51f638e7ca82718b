//! What a world is, as its seed draws it, and what takes the place of a process that died.

use super::*;

/// One of three kinds.
pub(super) fn rule(limit: u64, per: Duration, rng: &mut fastrand::Rng) -> Rule {
    match rng.u32(..3) {
        0 => Rule::SlidingWindow(SlidingWindow::try_new(limit, per, Duration::ZERO).expect("valid")),
        1 => Rule::FixedWindow(FixedWindow::try_new(limit, per).expect("valid")),
        _ => Rule::TokenBucket(TokenBucket::try_new(limit, limit, per, limit).expect("valid")),
    }
}

impl World {
    /// With a rule for so many permits in so many milliseconds.
    pub(super) fn draw(seed: u64, permits: Range<u64>, millis: Range<u64>) -> World {
        let mut rng = fastrand::Rng::with_seed(seed);
        let real = rng.u64(1_000..2_000) * SECOND;
        let (limit, per) = (rng.u64(permits), Duration::from_millis(rng.u64(millis)));
        let rule = rule(limit, per, &mut rng);
        let clocks = ClockBounds::default();
        let plan = |rules: Vec<Rule>| {
            let is_borrowed = rules.is_empty();
            let sharing = Sharing::default();
            Arc::new(Plan {
                rules,
                is_borrowed,
                is_root: false,
                clocks,
                ease_off: false,
                lessees_max: 1_000,
                sharing,
            })
        };
        let (centre, borrowed) = (plan(vec![rule]), plan(vec![]));
        let drift = i64::from(clocks.drift_ppm());
        let ppm = |rng: &mut fastrand::Rng| rng.i64(-drift..=drift);
        let centre_ppm = ppm(&mut rng);
        let mut world = World {
            real,
            order: 0,
            queue: BTreeMap::new(),
            rate: rng.f64() * 3.0 * per_second(&rule),
            rule,
            above: None,
            far: rng.u64(MILLI..40 * MILLI),
            near: rng.u64(MILLI / 10..3 * MILLI),
            trouble: Trouble {
                loss: rng.f64() * 0.2,
                repeat: rng.f64() * 0.2,
                late: rng.f64() * 0.05,
                every: rng.u64(2..20) * SECOND,
                centre_dies: rng.u32(..4) == 0,
            },
            centre_ppm,
            centre: Pool::new(centre.clone(), shown(real, centre_ppm)),
            centre_died: false,
            store: None,
            plan: centre,
            borrowed,
            regions: vec![],
            nodes: vec![],
            sessions: 0,
            spends: vec![],
            left: [None, None],
            exact: None,
            figures: Figures::default(),
            fault: None,
            rng,
        };
        for region in 0..world.rng.usize(1..=3) {
            let ppm = ppm(&mut world.rng);
            let fresh = world.new_region(ppm);
            world.regions.push(fresh);
            for _ in 0..world.rng.usize(1..=3) {
                let ppm = world.rng.i64(-drift..=drift);
                let node = world.new_node(ppm, region);
                world.nodes.push(node);
            }
        }
        world.rate /= world.nodes.len() as f64;
        world.lends_by(rule);
        world
    }

    /// This must hold.
    pub(super) fn lends_by(&mut self, rule: Rule) {
        let now = shown(self.real, self.centre_ppm);
        self.left[0] = Left::of(&rule, now);
        self.rule = rule;
        self.plan = Arc::new(Plan { rules: vec![rule], ..(*self.plan).clone() });
        self.centre = Pool::new(self.plan.clone(), now);
    }

    pub(super) fn new_line(&mut self) -> Line {
        self.sessions += 1;
        let timeout = Duration::from_nanos(TIMEOUT);
        Line { connection: Connection::new(1, timeout, 0, self.sessions - 1), cut_until: 0 }
    }

    pub(super) fn new_region(&mut self, ppm: i64) -> Region {
        let link = StoreLink::new(self.plan.clocks);
        let pool = Pool::new(self.borrowed.clone(), shown(self.real, ppm));
        Region {
            ppm,
            lag: Lag::default(),
            pool,
            above: None,
            told: [Duration::MAX; 2],
            line: self.new_line(),
            link,
        }
    }

    pub(super) fn new_node(&mut self, ppm: i64, region: usize) -> Node {
        let (slot, refill) = (Slot::new(), Refill::new(shown(self.real, ppm), true));
        let line = self.new_line();
        let born = line.session();
        Node { ppm, region, slot, refill, refused: 0, born, answered: (born, 0), line }
    }
}
