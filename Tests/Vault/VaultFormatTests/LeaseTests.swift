import LinuxSystem
import Testing
import VaultCrypto

@testable import VaultFormat

/// The effect of a slot's expiry and window at a moment.
@Suite struct LeaseTests {
    private static let created = "2026-11-01T00:00:00Z"

    private let test: TestConfiguration
    private let secret: SlotSecret

    init() throws {
        test = try TestConfiguration()
        secret = try SlotSecret.keyfile(try SecureRandom.bytes(count: 40))
    }

    /// Returns the state at `now` of a slot 4, made later than the other slots of `test`.
    private func lease(
        expires: String? = nil, window: PlayWindow? = nil, at now: String
    ) throws -> Lease {
        let configuration = try test.configuration.adding(
            SlotRequest(secret: secret, expires: expires, window: window), created: Self.created,
            masterKey: test.masterKey
        ).configuration
        return Lease(try #require(configuration.slot(4)), at: try seconds(now))
    }

    @Test("times are seconds since 1970, also across leap days")
    func timesAreSecondsSince1970() throws {
        let times: [(String, Int64)] = [
            ("1970-01-01T00:00:00Z", 0), ("1970-01-01T00:00:01Z", 1), ("2000-02-29T23:59:59Z", 951_868_799),
            ("2000-03-01T00:00:00Z", 951_868_800), ("2026-11-21T12:34:56Z", 1_795_264_496),
            ("2100-03-01T00:00:00Z", 4_107_542_400), ("1969-12-31T23:59:59Z", -1),
            ("0000-01-01T00:00:00Z", -62_167_219_200), ("9999-12-31T23:59:59Z", 253_402_300_799),
        ]
        for (time, expected) in times { #expect(UtcTime.seconds(time.utf8) == expected, "\(time)") }
    }

    @Test("Leases-1: a slot opens until it expires, and not from then on")
    func expiry() throws {
        let end = "2026-12-01T00:00:00Z"
        #expect(try lease(expires: end, at: "2026-11-30T23:59:59Z") == .valid(until: seconds(end)))
        #expect(try lease(expires: end, at: end) == .expired(at: seconds(end)))
        #expect(try lease(expires: end, at: "2030-01-01T00:00:00Z") == .expired(at: seconds(end)))
        for now in ["1999-01-01T00:00:00Z", "2026-12-01T00:00:00Z"] {
            #expect(try lease(at: now) == .valid(until: nil))
        }
    }

    @Test("Leases-1: a slot counts as expired from the very second of its end on")
    func isExpired() throws {
        let end = "2026-12-01T00:00:00Z"
        let slot = try #require(
            try test.configuration.adding(
                SlotRequest(secret: secret, expires: end), created: Self.created, masterKey: test.masterKey
            ).configuration.slot(4))
        #expect(try !slot.isExpired(at: seconds(end) - 1) && slot.isExpired(at: seconds(end)))
    }

    @Test("Leases-1: with a clock before the last time seen, a slot that ends does not open")
    func setBack() throws {
        let end = "2026-12-01T00:00:00Z"
        let seen = try seconds(Self.created)
        #expect(try lease(expires: end, at: "2026-10-31T23:59:59Z") == .setBack(seen: seen))
        #expect(try lease(expires: end, at: Self.created) == .valid(until: seconds(end)))
        #expect(try lease(window: PlayWindow(seconds: 60), at: "2026-10-31T23:59:59Z") == .setBack(seen: seen))
        let started = PlayWindow(seconds: 3600, started: "2026-11-02T00:00:00Z", seen: "2026-11-02T00:30:00Z")
        let expected = Lease.setBack(seen: try seconds("2026-11-02T00:30:00Z"))
        #expect(try lease(window: started, at: "2026-11-02T00:29:59Z") == expected)
    }

    @Test("Leases-1: a slot that was made under a clock far in the future blocks no other slot")
    func clockAhead() throws {
        let request = SlotRequest(secret: secret, expires: "2999-01-01T00:00:00Z")
        let configuration = try test.configuration.adding(request, created: Self.created, masterKey: test.masterKey)
            .configuration.adding(request, created: "2099-01-01T00:00:00Z", masterKey: test.masterKey).configuration
        let now = try seconds(Self.created)
        #expect(Lease(try #require(configuration.slot(4)), at: now).isUsable)
        #expect(
            Lease(try #require(configuration.slot(5)), at: now) == .setBack(seen: try seconds("2099-01-01T00:00:00Z")))
        #expect(try configuration.unwrapMasterKey(with: secret, at: now)?.slot.id == 4)
    }

    @Test("Leases-2: a window begins with the first use, and ends with its length or with the slot")
    func window() throws {
        let unstarted = try PlayWindow(seconds: 3600)
        let now = "2026-11-02T00:00:00Z"
        #expect(try lease(window: unstarted, at: now) == .starts(until: seconds("2026-11-02T01:00:00Z")))
        let end = try seconds("2026-11-02T00:10:00Z")
        #expect(try lease(expires: "2026-11-02T00:10:00Z", window: unstarted, at: now) == .starts(until: end))
        let started = try #require(unstarted.seeing("2026-11-01T23:30:00Z"))
        #expect(try lease(window: started, at: now) == .valid(until: seconds("2026-11-02T00:30:00Z")))
        let late = "2026-11-02T00:30:00Z"
        #expect(try lease(window: started, at: late) == .expired(at: seconds(late)))
        #expect(try lease(expires: now, window: unstarted, at: now) == .expired(at: seconds(now)))
    }

    @Test("Leases-2: the last time seen never decreases")
    func seen() throws {
        let started = try #require(try PlayWindow(seconds: 60).seeing("2026-11-01T10:00:00Z"))
        #expect(started.started == "2026-11-01T10:00:00Z" && started.seen == "2026-11-01T10:00:00Z")
        #expect(started.seeing("2026-11-01T10:00:00Z") == nil)
        #expect(started.seeing("2026-11-01T09:59:59Z") == nil)
        let later = try #require(started.seeing("2026-11-01T10:00:30Z"))
        #expect(later.started == started.started && later.seen == "2026-11-01T10:00:30Z")
    }

    @Test("of slots with one secret, one that may be used is opened first")
    func ofSlotsWithOneSecret() throws {
        let window = PlayWindow(seconds: 60, started: "2026-11-02T00:00:00Z", seen: "2026-11-02T00:00:00Z")
        let first = try test.configuration.adding(
            SlotRequest(secret: secret, window: window), created: Self.created, masterKey: test.masterKey)
        let both = try first.configuration.adding(
            SlotRequest(secret: secret), created: Self.created, masterKey: test.masterKey
        ).configuration
        #expect(try both.unwrapMasterKey(with: secret, at: seconds("2026-11-02T00:00:30Z"))?.slot.id == 4)
        #expect(try both.unwrapMasterKey(with: secret, at: seconds("2026-11-02T00:01:00Z"))?.slot.id == 5)
    }
}
