package import Glibc

/// The answer to a thread that asks for its next item of work. An optional of an optional would not do, because the
/// compiler turns any nil into the inner one.
package enum Next<Item> {
    case item(Item)
    case wait
    /// Wait, but only until this time.
    case waitUntil(ContinuousClock.Instant)
    case end
}

/// State protected by a mutex with a condition variable, which Synchronization's `Mutex` lacks. Any thread.
package final class Monitor<State: ~Copyable>: @unchecked Sendable {
    // @unchecked: `mutex` guards `state`. Inlinable, because a generic function of another module is not specialized.
    @usableFromInline let mutex: UnsafeMutablePointer<pthread_mutex_t>
    @usableFromInline let changed: UnsafeMutablePointer<pthread_cond_t>
    @usableFromInline var state: State

    package init(_ state: consuming State) {
        self.state = state
        mutex = .allocate(capacity: 1)
        changed = .allocate(capacity: 1)
        pthread_mutex_init(mutex, nil)
        var attributes = pthread_condattr_t()
        pthread_condattr_init(&attributes)
        // Deadlines must not move with the wall clock.
        pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC)
        pthread_cond_init(changed, &attributes)
        pthread_condattr_destroy(&attributes)
    }

    deinit {
        pthread_cond_destroy(changed)
        pthread_mutex_destroy(mutex)
        changed.deallocate()
        mutex.deallocate()
    }

    /// Changes the state and wakes all waiting threads.
    /// - Throws: the error of `body`.
    @inlinable package func update<Result, Failure: Error>(
        _ body: (inout State) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        pthread_mutex_lock(mutex)
        defer {
            pthread_cond_broadcast(changed)
            pthread_mutex_unlock(mutex)
        }
        return try body(&state)
    }

    /// Reads the state, or changes a part for which no thread waits. Wakes no thread, because this costs more than most
    /// requests.
    /// - Throws: the error of `body`.
    @inlinable package func access<Result, Failure: Error>(
        _ body: (inout State) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        pthread_mutex_lock(mutex)
        defer { pthread_mutex_unlock(mutex) }
        return try body(&state)
    }

    /// Accesses the state, if no other thread has the mutex. Otherwise returns nil.
    package func accessIfAvailable<Result>(_ body: (inout State) -> Result) -> Result? {
        guard pthread_mutex_trylock(mutex) == 0 else { return nil }
        defer { pthread_mutex_unlock(mutex) }
        return body(&state)
    }

    /// Waits until `body` returns a value.
    package func wait<Result>(for body: (inout State) -> Result?) -> Result {
        pthread_mutex_lock(mutex)
        defer { pthread_mutex_unlock(mutex) }
        while true {
            if let result = body(&state) { return result }
            pthread_cond_wait(changed, mutex)
        }
    }

    /// Waits until `body` returns an item, or the end. Returns nil at the end.
    package func next<Item>(_ body: (inout State) -> Next<Item>) -> Item? {
        pthread_mutex_lock(mutex)
        defer { pthread_mutex_unlock(mutex) }
        while true {
            switch body(&state) {
            case .item(let item): return item
            case .wait: pthread_cond_wait(changed, mutex)
            case .waitUntil(let deadline):
                var time = deadline.monotonic
                pthread_cond_timedwait(changed, mutex, &time)
            case .end: return nil
            }
        }
    }

    /// Waits until `body` returns a value, or until `deadline`. Then returns nil.
    package func wait<Result>(
        until deadline: ContinuousClock.Instant, for body: (inout State) -> Result?
    ) -> Result? {
        var time = deadline.monotonic
        pthread_mutex_lock(mutex)
        defer { pthread_mutex_unlock(mutex) }
        while true {
            if let result = body(&state) { return result }
            if pthread_cond_timedwait(changed, mutex, &time) == ETIMEDOUT { return body(&state) }
        }
    }
}

extension ContinuousClock.Instant {
    /// The same time of CLOCK_MONOTONIC, provided that the machine does not sleep before.
    fileprivate var monotonic: timespec {
        let end = monotonicNanoseconds() + Int((self - .now) / .nanoseconds(1))
        return timespec(tv_sec: end / 1_000_000_000, tv_nsec: end % 1_000_000_000)
    }
}

extension Duration {
    /// The timeout for poll(2), in milliseconds. It is never too short.
    package var pollTimeout: Int32 {
        Int32(clamping: max(0, components.seconds * 1000 + components.attoseconds / 1_000_000_000_000_000 + 1))
    }
}

/// Returns CLOCK_MONOTONIC in milliseconds (clock_gettime(2)).
package func monotonicMilliseconds() -> Int { monotonicNanoseconds() / 1_000_000 }

/// Returns CLOCK_MONOTONIC in nanoseconds (clock_gettime(2)).
package func monotonicNanoseconds() -> Int { nanoseconds(of: CLOCK_MONOTONIC) }

/// Returns a clock's time in nanoseconds (clock_gettime(2)).
package func nanoseconds(of clock: clockid_t) -> Int {
    var now = timespec()
    clock_gettime(clock, &now)
    return now.tv_sec * 1_000_000_000 + now.tv_nsec
}
