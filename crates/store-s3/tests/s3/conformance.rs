//! The store passes the conformance suite on a real server, or on a server in this process if there is none. `FERRATA_CONFORMANCE=all` runs both.

mod in_process {
    use ferrata_store_conformance::suite;

    use crate::spaces::InProcess;

    suite!(InProcess, needs: store_test_in_process = "a real server is asked; FERRATA_CONFORMANCE=all asks both", without: [
        notices = "a bucket tells nobody when an object is put",
        clock = "a server tells its time in whole seconds, and the group is about milliseconds",
        tail = "the listing of its objects is what says where a log ends",
        transactions = "the store has none",
    ]);
}

mod on_server {
    use ferrata_store_conformance::suite;

    use crate::spaces::OnServer;

    suite!(OnServer, needs: store_test_s3 = "set STORE_TEST_S3_URL to the address of a server of S3", without: [
        notices = "a bucket tells nobody when an object is put",
        clock = "the server's clock cannot be moved",
        tail = "the listing of its objects is what says where a log ends",
        transactions = "the store has none",
    ]);
}
