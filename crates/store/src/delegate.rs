//! The macro for a store that wraps another store and forwards methods to it.

/// Writes methods of [`CheckpointStore`](crate::CheckpointStore) that call the same method of another store.
///
/// Use it in an `impl CheckpointStore`: name the inner store, then the methods. After the store, `|call|` and an expression may follow. Each method
/// then returns the future that the expression makes of the inner store's future; such a list may contain only `async` methods.
///
/// If the wrapper neither writes nor lists an optional method, the trait's default applies, which says that the store lacks this ability.
///
/// ```
/// use async_trait::async_trait;
/// use ferrata_store::{CheckpointStore, HeadRef, MemoryStore, Removed, Result, RunAppend, RunKey, delegate};
///
/// #[derive(Debug)]
/// struct KeepsAll(MemoryStore);
///
/// async fn slowly<T>(call: impl Future<Output = T>) -> T {
///     tokio::task::yield_now().await;
///     call.await
/// }
///
/// #[async_trait]
/// impl CheckpointStore for KeepsAll {
///     async fn purge(&self, _run: &RunKey, _expected: Option<HeadRef>) -> Result<Removed> {
///         Ok(Removed::default())
///     }
///
///     delegate! {
///         |this| this.0;
///         capabilities, setup, load, load_since, headers, head, runs, prune, heartbeat, part, subscribe
///     }
///     delegate! { |this| this.0, |call| slowly(call); append }
/// }
/// ```
#[macro_export]
macro_rules! delegate {
    (|$this:ident| $store:expr; $($method:ident),+ $(,)?) => {
        $($crate::__delegate!($method, $this, $store);)+
    };
    (|$this:ident| $store:expr, |$call:ident| $around:expr; $($method:ident),+ $(,)?) => {
        $($crate::__delegate!($method, $this, $store, $call, ::std::boxed::Box::pin($around));)+
    };
}

/// One method, in the form that `async_trait` would generate.
#[doc(hidden)]
#[macro_export]
macro_rules! __delegate {
    (setup, $($how:tt)+) => {
        $crate::__delegate!(@waits setup, (), (), $crate::Result<()>, $($how)+);
    };
    (append, $($how:tt)+) => {
        $crate::__delegate!(@waits append, (), (batch: ::std::vec::Vec<$crate::RunAppend>),
            ::std::vec::Vec<$crate::Result<$crate::HeadRef>>, $($how)+);
    };
    (load, $($how:tt)+) => {
        $crate::__delegate!(@waits load, (run: $crate::RunKey), (at: $crate::At),
            $crate::Result<::std::option::Option<::std::vec::Vec<$crate::Record>>>, $($how)+);
    };
    (load_since, $($how:tt)+) => {
        $crate::__delegate!(@waits load_since, (run: $crate::RunKey), (known: $crate::HeadRef),
            $crate::Result<::std::option::Option<::std::vec::Vec<$crate::Record>>>, $($how)+);
    };
    (headers, $($how:tt)+) => {
        $crate::__delegate!(@waits headers, (run: $crate::RunKey), (range: $crate::HeaderRange),
            $crate::Result<$crate::Headers>, $($how)+);
    };
    (head, $($how:tt)+) => {
        $crate::__delegate!(@waits head, (run: $crate::RunKey), (),
            $crate::Result<::std::option::Option<$crate::RunHead>>, $($how)+);
    };
    (runs, $($how:tt)+) => {
        $crate::__delegate!(@waits runs, (query: $crate::RunQuery), (page: $crate::Page),
            $crate::Result<$crate::Paged<$crate::RunHead>>, $($how)+);
    };
    (prune, $($how:tt)+) => {
        $crate::__delegate!(@waits prune, (run: $crate::RunKey), (cut: $crate::PruneCut),
            $crate::Result<$crate::Removed>, $($how)+);
    };
    (purge, $($how:tt)+) => {
        $crate::__delegate!(@waits purge, (run: $crate::RunKey),
            (expected: ::std::option::Option<$crate::HeadRef>), $crate::Result<$crate::Removed>, $($how)+);
    };
    (heartbeat, $($how:tt)+) => {
        $crate::__delegate!(@waits heartbeat, (executor: $crate::ExecutorId), (ttl: ::std::time::Duration),
            $crate::Result<()>, $($how)+);
    };
    (is_alive, $($how:tt)+) => {
        $crate::__delegate!(@waits is_alive, (executor: $crate::ExecutorId), (), $crate::Result<bool>, $($how)+);
    };
    (part, $this:ident, $store:expr) => {
        fn part(&self, run: &$crate::RunKey) -> u64 {
            let $this = self;
            $crate::CheckpointStore::part(&$store, run)
        }
    };
    (capabilities, $($how:tt)+) => { $crate::__delegate!(@says capabilities, $crate::Capabilities, $($how)+); };
    (transactions, $($how:tt)+) => {
        $crate::__delegate!(@says transactions, ::std::option::Option<&dyn $crate::Transactions>, $($how)+);
    };
    (resealing, $($how:tt)+) => {
        $crate::__delegate!(@says resealing, ::std::option::Option<&dyn $crate::Resealing>, $($how)+);
    };
    (relay, $($how:tt)+) => {
        $crate::__delegate!(@says relay, ::std::option::Option<&dyn $crate::Relay>, $($how)+);
    };
    (subscribe, $($how:tt)+) => {
        $crate::__delegate!(@says subscribe, ::std::option::Option<$crate::Notices>, $($how)+);
    };
    (@says $method:ident, $out:ty, $this:ident, $store:expr) => {
        fn $method(&self) -> $out {
            let $this = self;
            $crate::CheckpointStore::$method(&$store)
        }
    };
    (@waits $method:ident, ($($by:ident: $of:ty)?), ($($value:ident: $ty:ty)?), $out:ty, $this:ident, $store:expr) => {
        $crate::__delegate!(@waits $method, ($($by: $of)?), ($($value: $ty)?), $out, $this, $store, call, call);
    };
    (@waits $method:ident, (), ($($value:ident: $ty:ty)?), $out:ty,
        $this:ident, $store:expr, $call:ident, $around:expr) => {
        fn $method<'generation0, 'async_trait>(
            &'generation0 self,
            $($value: $ty,)?
        ) -> ::std::pin::Pin<
            ::std::boxed::Box<dyn ::std::future::Future<Output = $out> + ::std::marker::Send + 'async_trait>,
        >
        where
            'generation0: 'async_trait,
            Self: 'async_trait,
        {
            let $this = self;
            let $call = $crate::CheckpointStore::$method(&$store $(, $value)?);
            $around
        }
    };
    (@waits $method:ident, ($by:ident: $of:ty), ($($value:ident: $ty:ty)?), $out:ty,
        $this:ident, $store:expr, $call:ident, $around:expr) => {
        fn $method<'generation0, 'generation1, 'async_trait>(
            &'generation0 self,
            $by: &'generation1 $of,
            $($value: $ty,)?
        ) -> ::std::pin::Pin<
            ::std::boxed::Box<dyn ::std::future::Future<Output = $out> + ::std::marker::Send + 'async_trait>,
        >
        where
            'generation0: 'async_trait,
            'generation1: 'async_trait,
            Self: 'async_trait,
        {
            let $this = self;
            let $call = $crate::CheckpointStore::$method(&$store, $by $(, $value)?);
            $around
        }
    };
}
