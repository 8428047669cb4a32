import Glibc
import LinuxSystem
import SystemPackage
import Testing
import VaultCrypto

@testable import ViewFormats

/// Keys fetched by several threads, with locks and unmounts in between.
@Suite(.timeLimit(.minutes(60))) struct KeyStoreTests {
    let place: KeyPlace
    let name = KeyName.path([UInt8]("a".utf8), cipher: .aes128CBC)

    init() throws { place = try KeyPlace() }

    private func names(_ count: Int) -> [KeyName] {
        (0..<count).map { .path([UInt8]("\($0)".utf8), cipher: .aes128CBC) }
    }

    private func derived(_ number: Int) -> KeyName {
        .derived(salt: [UInt8]("\(number)".utf8), cipher: .aes128CBC)
    }

    /// Fetches a key on another thread. The result comes later.
    private func fetch(_ store: KeyStore, _ name: KeyName) throws -> Monitor<Result<[UInt8], ViewError>?> {
        let outcome = Monitor<Result<[UInt8], ViewError>?>(nil)
        try BackgroundThread {
            let result: Result<[UInt8], ViewError> = Result { () throws(ViewError) in
                try store.fetch(name).key.exposed
            }
            outcome.update { $0 = result }
        }.detach()
        return outcome
    }

    @Test("Eight threads that want one key run one command and share its result")
    func shared() throws {
        try place.makeFifo("answer")
        let store = KeyStore(place.sources(command: place.command("echo run >>runs; cat answer")))
        defer { store.stop() }
        let fetches = try (0..<8).map { _ in try fetch(store, name) }
        try place.feedFifo("answer", KeyPlace.key)
        for fetch in fetches { #expect(fetch.wait { $0 } == .success(KeyPlace.key)) }
        #expect(try place.read("runs") == [UInt8]("run\n".utf8))
        #expect(store.find(name)?.key.exposed == KeyPlace.key)
    }

    @Test("An open reads a key again whose file has changed")
    func changedFile() throws {
        let name = KeyName.uri([UInt8]("k".utf8), directory: [])
        try place.write("k", KeyPlace.key)
        let store = KeyStore(place.sources())
        defer { store.stop() }
        _ = try store.fetch(name)
        store.prove([name])
        #expect(store.findCurrent(name)?.key.exposed == KeyPlace.key)
        let other = [UInt8](KeyPlace.key.reversed())
        try place.write("k", other)
        #expect(store.findCurrent(name) == nil)
        #expect(try store.fetch(name).key.exposed == other)
        #expect(unlink("\(place.path)/k") == 0)
        #expect(store.findCurrent(name)?.key.exposed == other)
    }

    @Test("A given key that cannot be read is named, also if there is a key command")
    func missingGiven() throws {
        let (good, bad) = (String(repeating: "0a", count: 16), String(repeating: "0b", count: 16))
        let files = [[UInt8](good.utf8): try place.write("good"), [UInt8](bad.utf8): place.file("absent")]
        let store = KeyStore(place.sources(files, command: place.command("echo run >>runs")))
        defer { store.stop() }
        let missing = store.missing([])
        #expect(missing.count == 1 && missing.first?.contains("absent") == true, "\(missing)")
        #expect(missing.first?.hasPrefix("no key for ") == true, "\(missing)")
        #expect(throws: StoreError.self) { try place.read("runs") }
    }

    @Test("A given key that cannot be read is named once, also if no playlist names its URI")
    func missingUnnamed() throws {
        try place.write("good", [UInt8](repeating: 7, count: 32))
        let files = [
            [UInt8]("skd://good".utf8): place.file("good"), [UInt8]("skd://bad".utf8): place.file("absent"),
        ]
        let store = KeyStore(place.sources(files))
        defer { store.stop() }
        let names = [[], [KeyName.uri([UInt8]("skd://bad".utf8), directory: [])]] as [Set<KeyName>]
        for names in names {
            let missing = store.missing(names)
            #expect(missing.count == 1 && missing.first?.contains("absent") == true, "\(missing)")
        }
    }

    @Test("A failure is not kept, a success is")
    func retry() throws {
        let store = KeyStore(place.sources(command: place.command("echo run >>runs; cat key")))
        defer { store.stop() }
        for _ in 0..<2 {
            #expect(noKeyReason(try store.fetch(name)) == "no key for a: the key command failed with exit code 1")
        }
        #expect(store.find(name) == nil)
        try place.write("key")
        for _ in 0..<3 { #expect(try store.fetch(name).key.exposed == KeyPlace.key) }
        #expect(try place.read("runs") == [UInt8]("run\nrun\nrun\n".utf8))
    }

    @Test("A key that opens nothing is dropped, one that has opened a file stays, and so does one that cannot change")
    func unproven() throws {
        try place.write("key")
        let shared = KeyMaterial(KeyPlace.key)
        let store = KeyStore(place.sources(command: place.command("cat key")), shared: shared)
        defer { store.stop() }
        _ = try store.fetch(name)
        store.dropUnproven([name, .shared])
        #expect(store.find(name) == nil && store.find(.shared) != nil)
        _ = try store.fetch(name)
        store.prove([name])
        store.dropUnproven([name])
        #expect(store.find(name)?.key.exposed == KeyPlace.key)
    }

    @Test("The view's one key exists from the start, and again after an unlock")
    func one() throws {
        let material = KeyMaterial(KeyPlace.key)
        let store = KeyStore(place.sources(), shared: material, capacity: 1)
        defer { store.stop() }
        #expect(store.find(.shared)?.key === material.key)
        store.forget()
        #expect(store.find(.shared) == nil)
        #expect(throws: ViewError.store(.locked)) { try store.fetch(.shared) }
        store.reopen(shared: nil)
        #expect(noKeyReason(try store.fetch(.shared)) == "the view's key is not in memory: unlock the view")
        store.reopen(shared: material)
        #expect(try store.fetch(.shared).key === material.key)
    }

    @Test("Forgetting drops every key, which wipes it")
    func forgotten() throws {
        let store = KeyStore(place.sources { (_, _) throws(ViewError) in KeyMaterial(KeyPlace.key) })
        defer { store.stop() }
        weak let weak = try store.fetch(derived(1)).key
        #expect(weak != nil)
        store.forget()
        #expect(weak == nil)
        #expect(throws: ViewError.store(.locked)) { try store.fetch(derived(1)) }
        store.reopen(shared: nil)
        #expect(try store.fetch(derived(1)).key.exposed == KeyPlace.key)
    }

    @Test("A key requested before a lock is not stored after it")
    func forgetWhileFetching() throws {
        try place.makeFifo("started")
        let store = KeyStore(place.sources(command: place.command("echo >started; sleep 1000")))
        defer { store.stop() }
        let fetches = try (0..<3).map { _ in try fetch(store, name) }
        try place.awaitFifo("started")
        store.forget()
        for fetch in fetches { #expect(fetch.wait { $0 } == .failure(.store(.locked))) }
        store.reopen(shared: nil)
        #expect(store.find(name) == nil)
    }

    @Test("A key that was being derived is not stored after a lock, and is wiped")
    func forgetWhileDeriving() throws {
        let phase = Monitor(0)
        let store = KeyStore(
            place.sources { (_, _) throws(ViewError) in
                phase.update { $0 = max($0, 1) }
                // The first derivation continues after the lock and the unlock.
                phase.wait { $0 == 2 ? () : nil }
                return KeyMaterial(KeyPlace.key)
            })
        defer { store.stop() }
        let fetch = try fetch(store, derived(1))
        phase.wait { $0 == 1 ? () : nil }
        store.forget()
        let hasEnded = Monitor(0)
        let waiting = try BackgroundThread {
            store.waitForLoads()
            hasEnded.update { $0 = phase.access { $0 } }
        }
        store.reopen(shared: nil)
        phase.update { $0 = 2 }
        waiting.join()
        #expect(hasEnded.access { $0 } == 2)
        #expect(fetch.wait { $0 } == .failure(.store(.locked)))
        #expect(store.find(derived(1)) == nil)
        #expect(try store.fetch(derived(1)).key.exposed == KeyPlace.key)
    }

    @Test("Unmounting ends commands and waiting threads at once")
    func stopWhileFetching() throws {
        try place.makeFifo("started")
        let store = KeyStore(place.sources(command: place.command("echo >started; sleep 1000")))
        let fetches = try (0..<3).map { _ in try fetch(store, name) }
        try place.awaitFifo("started")
        let taken = store.prefetch(names(100)) { _, _ in }
        #expect(taken == 100)
        store.stop()
        for fetch in fetches { #expect(fetch.wait { $0 } == .failure(.noKey("the view is being unmounted"))) }
        store.reopen(shared: nil)
        #expect(noKeyReason(try store.fetch(name)) == "the view is being unmounted")
        #expect(store.prefetch(names(1)) { _, _ in } == 0)
    }

    @Test("Keys are prefetched by four threads, and each result is reported")
    func ahead() throws {
        let counts = Monitor((running: 0, most: 0, done: [KeyName: Bool]()))
        let store = KeyStore(
            place.sources { (salt, _) throws(ViewError) in
                counts.update {
                    $0.running += 1
                    $0.most = max($0.most, $0.running)
                }
                // Wait until four commands have arrived, or the last ones.
                counts.wait { $0.most == 4 ? () : nil }
                counts.update { $0.running -= 1 }
                if salt == [UInt8]("7".utf8) { throw .noKey("not this one") }
                return KeyMaterial(salt)
            })
        defer { store.stop() }
        let names = (0..<40).map(derived)
        #expect(
            store.prefetch(names) { name, outcome in
                let isThere = (try? outcome.get()) != nil
                counts.update { $0.done[name] = isThere }
            } == 40)
        let done = counts.wait { $0.done.count == 40 ? $0.done : nil }
        #expect(counts.update { $0.most } == 4)
        for (number, name) in names.enumerated() {
            #expect(done[name] == (number != 7))
            #expect((store.find(name) == nil) == (number == 7))
        }
    }

    @Test("The prefetch queue is bounded, and empty after a lock")
    func bounded() throws {
        let loads = Monitor((count: 0, isHeld: true))
        let store = KeyStore(
            place.sources { (salt, _) throws(ViewError) in
                loads.update { $0.count += 1 }
                loads.wait { $0.isHeld ? nil : () }
                return KeyMaterial(salt)
            })
        defer { store.stop() }
        let names = (0..<(KeyStore.queueLimit + 10)).map(derived)
        #expect(store.prefetch(names) { _, _ in } == KeyStore.queueLimit)
        loads.wait { $0.count == 4 ? () : nil }
        // The four held loads block the queue until after the unlock.
        store.forget()
        store.reopen(shared: nil)
        loads.update { $0.isHeld = false }
        let last = Monitor(false)
        store.prefetch([derived(-1)]) { _, _ in last.update { $0 = true } }
        last.wait { $0 ? () : nil }
        #expect(loads.update { $0.count } == 5)
    }

    @Test("Threads that have no more prefetches wait for new ones")
    func idle() throws {
        let store = KeyStore(place.sources { (salt, _) throws(ViewError) in KeyMaterial(salt) })
        defer { store.stop() }
        for number in 0..<20 {
            let isDone = Monitor(false)
            store.prefetch([derived(number)]) { _, _ in isDone.update { $0 = true } }
            let outcome: Bool? = isDone.wait(until: .now + .seconds(30)) { $0 ? true : nil }
            try #require(outcome == true, "prefetch \(number)")
        }
    }

    @Test("A tree with more salts than the number of kept keys stays bounded, and works")
    func many() throws {
        let store = KeyStore(place.sources { (salt, _) throws(ViewError) in KeyMaterial(salt) }, capacity: 100)
        defer { store.stop() }
        for number in 0..<1000 { #expect(try store.fetch(derived(number)).key.exposed == [UInt8]("\(number)".utf8)) }
        #expect((0..<1000).count { store.find(derived($0)) != nil } <= 100)
    }
}
