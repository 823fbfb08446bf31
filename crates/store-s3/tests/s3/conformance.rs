//! The store keeps the contract, as the suite for every store states it: on the server in this process, and on a real one.

mod in_process {
    use ferrata_store_conformance::suite;

    use crate::spaces::InProcess;

    suite!(InProcess, without: [
        notices = "a bucket tells nobody when an object is put",
        clock = "a server tells its time in whole seconds, and the group is about milliseconds",
    ]);
}

mod on_server {
    use ferrata_store_conformance::suite;

    use crate::spaces::OnServer;

    suite!(OnServer, needs: store_test_s3 = "set STORE_TEST_S3_URL to the address of a server of S3", without: [
        notices = "a bucket tells nobody when an object is put",
        clock = "the server's clock cannot be moved",
    ]);
}
