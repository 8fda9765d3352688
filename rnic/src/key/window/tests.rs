use super::*;

const ALL: Access = Access {
    local_read: true,
    local_write: true,
    remote_read: true,
    remote_write: true,
    remote_atomic: false,
};

struct Rig {
    keys: Arc<Keys>,
    pd: Pd,
    /// The scopes of two queue pairs.
    qps: [Scope; 2],
    memory: Box<[u8; 256]>,
}

impl Rig {
    fn new() -> Self {
        let keys = Arc::new(Keys::new());
        let pd = keys.pd();
        let qps = [(); 2].map(|()| Scope::of_qp(pd, keys.qp_number()));
        Rig { keys, pd, qps, memory: Box::new([0; 256]) }
    }

    fn addr(&self) -> u64 {
        self.memory.as_ptr() as u64
    }

    fn region(&self, access: Access, zero_based: bool) -> Mr {
        // SAFETY: nobody accesses the memory.
        unsafe { Mr::new(&self.keys, self.pd, self.addr() as *mut u8, 256, access, zero_based) }
            .unwrap()
    }

    fn view<'a>(&self, region: &'a Mr, offset: u64, len: u64) -> View<'a> {
        View { region, addr: self.addr().wrapping_add(offset), len, access: ALL, zero_based: false }
    }

    /// Reserves a key and carries out the bind.
    fn bound(&self, window: &Mw, view: View<'_>) -> u32 {
        let stag = self.keys.reserve(window, self.qps[0], Some(&view)).unwrap();
        self.keys.bind(stag).unwrap();
        stag
    }

    fn write(&self, stag: u32, qp: usize, to: u64) -> Result<u64, KeyError> {
        self.keys.check(stag, self.qps[qp], to, 1, Right::RemoteWrite)
    }
}

#[test]
fn a_bind_makes_a_key_and_ends_the_one_before() {
    let rig = Rig::new();
    let region = rig.region(ALL, false);
    let window = Mw::new(&rig.keys, rig.pd, false);
    let first = rig.keys.reserve(&window, rig.qps[0], Some(&rig.view(&region, 16, 32))).unwrap();
    assert_eq!(window.state(first), BindState::Posted);
    assert_eq!(
        rig.write(first, 0, rig.addr() + 16),
        Err(KeyError::Access),
        "the bind has not been carried out"
    );
    rig.keys.bind(first).unwrap();
    assert_eq!(window.state(first), BindState::Bound);
    for qp in [0, 1] {
        assert_eq!(rig.write(first, qp, rig.addr() + 16), Ok(rig.addr() + 16));
    }
    for outside in [rig.addr() + 15, rig.addr() + 48] {
        assert_eq!(rig.write(first, 0, outside), Err(KeyError::Bounds));
    }
    // The key of a window grants access only to peers.
    let local = rig.keys.check(first, rig.qps[0], rig.addr() + 16, 1, Right::LocalRead);
    assert_eq!(local, Err(KeyError::Access));

    let second = rig.keys.reserve(&window, rig.qps[1], Some(&rig.view(&region, 0, 1))).unwrap();
    assert_ne!(first, second);
    assert_eq!(
        rig.write(first, 0, rig.addr() + 16),
        Ok(rig.addr() + 16),
        "the old key is valid until the next bind is carried out"
    );
    rig.keys.bind(second).unwrap();
    assert_eq!(rig.write(first, 0, rig.addr() + 16), Err(KeyError::Invalid));
    assert_eq!((window.state(first), window.state(second)), (BindState::Over, BindState::Bound));

    let unbind = rig.keys.reserve(&window, rig.qps[0], None).unwrap();
    rig.keys.bind(unbind).unwrap();
    assert_eq!(rig.write(second, 0, rig.addr()), Err(KeyError::Invalid));
    assert_eq!((window.state(second), window.state(unbind)), (BindState::Over, BindState::Over));
    drop(region);
    assert_eq!(rig.keys.live(), 0);
}

#[test]
fn what_is_not_carried_out_changes_nothing() {
    let rig = Rig::new();
    let region = rig.region(ALL, false);
    let window = Mw::new(&rig.keys, rig.pd, false);
    let bound = rig.bound(&window, rig.view(&region, 0, 8));
    let flushed = rig.keys.reserve(&window, rig.qps[0], Some(&rig.view(&region, 8, 8))).unwrap();
    rig.keys.cancel(flushed);
    assert_eq!((window.state(bound), window.state(flushed)), (BindState::Bound, BindState::Over));
    assert_eq!(rig.write(bound, 0, rig.addr()), Ok(rig.addr()));
    assert_eq!(rig.keys.live(), 2);
}

#[test]
fn a_view_is_judged() {
    let rig = Rig::new();
    let region = rig.region(ALL, false);
    let window = Mw::new(&rig.keys, rig.pd, false);
    let refused = |view: View<'_>| rig.keys.reserve(&window, rig.qps[0], Some(&view)).unwrap_err();
    assert_eq!(refused(rig.view(&region, 0, 257)), PostError::Bounds);
    assert_eq!(refused(rig.view(&region, 257, 0)), PostError::Bounds);
    assert_eq!(refused(rig.view(&region, u64::MAX, 1)), PostError::Bounds);
    assert_eq!(refused(rig.view(&region, 1, u64::MAX)), PostError::Bounds);
    let unreadable = rig.region(Access { local_read: false, ..ALL }, false);
    assert_eq!(refused(rig.view(&unreadable, 0, 8)), PostError::Access { write: false });
    let unwritable = rig.region(Access { local_write: false, ..ALL }, false);
    assert_eq!(refused(rig.view(&unwritable, 0, 8)), PostError::Access { write: true });
    let atomic = View {
        access: Access { remote_atomic: true, ..Access::default() },
        ..rig.view(&unwritable, 0, 8)
    };
    assert_eq!(refused(atomic), PostError::Access { write: true });
    let read_only = Access { remote_write: false, ..ALL };
    let shown = View { access: read_only, ..rig.view(&unwritable, 0, 8) };
    let stag = rig.bound(&window, shown);
    assert_eq!(rig.write(stag, 0, rig.addr()), Err(KeyError::Access));
    assert!(rig.keys.check(stag, rig.qps[0], rig.addr(), 8, Right::RemoteRead).is_ok());

    let other = Rig::new();
    let foreign = rig.keys.pd();
    let elsewhere = Mw::new(&rig.keys, foreign, false);
    let judged = rig.keys.reserve(&elsewhere, rig.qps[0], None);
    assert_eq!(judged, Err(PostError::Domain), "the window belongs to another domain");
    // SAFETY: nobody accesses the memory.
    let beyond =
        unsafe { Mr::new(&rig.keys, foreign, other.addr() as *mut u8, 256, ALL, false) }.unwrap();
    assert_eq!(refused(other.view(&beyond, 0, 8)), PostError::Domain);
}

#[test]
fn a_scoped_window_is_for_one_queue_pair() {
    let rig = Rig::new();
    let region = rig.region(ALL, false);
    let window = Mw::new(&rig.keys, rig.pd, true);
    let stag = rig.bound(&window, rig.view(&region, 0, 8));
    assert_eq!(rig.write(stag, 0, rig.addr()), Ok(rig.addr()));
    assert_eq!(rig.write(stag, 1, rig.addr()), Err(KeyError::Domain));
    assert_eq!(rig.keys.invalidate(stag, rig.qps[1]), Err(KeyError::Domain));
    assert_eq!(rig.keys.invalidate(stag, rig.qps[0]), Ok(()));
}

#[test]
fn zero_based_views_and_regions() {
    let rig = Rig::new();
    let (by_address, by_offset) = (rig.region(ALL, false), rig.region(ALL, true));
    let window = Mw::new(&rig.keys, rig.pd, false);
    for (region, addr) in [(&by_address, rig.addr() + 64), (&by_offset, 64)] {
        let view = View { region, addr, len: 8, access: ALL, zero_based: true };
        let stag = rig.bound(&window, view);
        assert_eq!(rig.write(stag, 0, 7), Ok(rig.addr() + 71));
        assert_eq!(rig.write(stag, 0, 8), Err(KeyError::Bounds));
        let stag = rig.bound(&window, View { zero_based: false, ..view });
        assert_eq!(rig.write(stag, 0, rig.addr() + 64), Ok(rig.addr() + 64));
        assert_eq!(rig.write(stag, 0, 0), Err(KeyError::Bounds));
    }
}

#[test]
fn peers_invalidate_windows_and_not_regions() {
    let rig = Rig::new();
    let region = rig.region(ALL, false);
    let window = Mw::new(&rig.keys, rig.pd, false);
    let stag = rig.bound(&window, rig.view(&region, 0, 8));
    let (other, by) = (Scope::from(rig.keys.pd()), rig.qps[1]);
    assert_eq!(rig.keys.invalidate(stag, other), Err(KeyError::Domain));
    assert_eq!(rig.keys.invalidate(stag ^ 1, by), Err(KeyError::Invalid));
    assert_eq!(rig.keys.invalidate(region.rkey(), by), Err(KeyError::Access));
    assert_eq!(rig.keys.invalidate(stag, by), Ok(()));
    assert_eq!(rig.keys.invalidate(stag, by), Err(KeyError::Invalid));
    assert_eq!(window.state(stag), BindState::Over);
    assert_eq!(rig.write(region.rkey(), 0, rig.addr()), Ok(rig.addr()));
    // A bind that has not been carried out cannot be invalidated.
    let posted = rig.keys.reserve(&window, by, Some(&rig.view(&region, 0, 8))).unwrap();
    assert_eq!(rig.keys.invalidate(posted, by), Err(KeyError::Invalid));
    rig.keys.bind(posted).unwrap();
    assert_eq!(rig.write(posted, 0, rig.addr()), Ok(rig.addr()));
}

#[test]
fn windows_go_with_what_they_show() {
    let rig = Rig::new();
    let region = rig.region(ALL, false);
    let (window, late) = (Mw::new(&rig.keys, rig.pd, false), Mw::new(&rig.keys, rig.pd, false));
    let bound = rig.bound(&window, rig.view(&region, 0, 8));
    let queued = rig.keys.reserve(&late, rig.qps[0], Some(&rig.view(&region, 0, 8))).unwrap();
    drop(region);
    assert_eq!(rig.write(bound, 0, rig.addr()), Err(KeyError::Invalid));
    assert_eq!((window.state(bound), late.state(queued)), (BindState::Over, BindState::Posted));
    assert_eq!(rig.keys.bind(queued), Err(KeyError::Invalid));
    assert_eq!(late.state(queued), BindState::Over);
    assert_eq!(rig.keys.live(), 0);
}

#[test]
fn a_dropped_window_is_unbound_and_stays_so() {
    let rig = Rig::new();
    let region = rig.region(ALL, false);
    let window = Mw::new(&rig.keys, rig.pd, false);
    let bound = rig.bound(&window, rig.view(&region, 0, 8));
    let queued = rig.keys.reserve(&window, rig.qps[0], Some(&rig.view(&region, 0, 8))).unwrap();
    drop(window);
    assert_eq!(rig.write(bound, 0, rig.addr()), Err(KeyError::Invalid));
    assert_eq!(rig.keys.bind(queued), Ok(()), "the bind of a freed window does nothing");
    assert_eq!(rig.write(queued, 0, rig.addr()), Err(KeyError::Invalid));
    assert_eq!(rig.keys.live(), 1);
}
