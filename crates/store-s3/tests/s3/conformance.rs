//! The store keeps the contract, as the suite for every store states it.

mod in_process {
    use ferrata_store_conformance::suite;

    use crate::spaces::InProcess;

    suite!(InProcess, without: [
        notices = "a bucket tells nobody when an object is put",
        clock = "a server tells its time in whole seconds, and the group is about milliseconds",
        damage = "x",
        gap = "x",
        torn = "x",
        newer = "x",
    ]);
}
