import LinuxSystem
import Synchronization
import SystemPackage
import TestSupport
import Testing

@testable import ViewFormats

/// Boxes that lie about their content. The tests count steps, not seconds.
@Suite("The cost of MP4 files") struct Mp4BudgetTests {
    typealias Boxes = Mp4Boxes

    private static let initSegment = Boxes.ftyp + Boxes.moov(Boxes.track(Boxes.protectedEntry()))

    /// Reads a fragment. Returns the steps, and the error if it failed.
    private func read(_ moof: [UInt8], media: Int, _ work: Mp4Work = Mp4Work()) throws -> (
        steps: Int, error: ViewError?
    ) {
        let source = try ViewPlace().source(of: Self.initSegment)
        let movie = try Mp4InitSegment(source: source, bytes: nil).movie(work)
        let bytes = UInt64(0)..<UInt64(moof.count + media)
        var budget = Mp4Budget(work, media: UInt64(moof.count + media))
        var error: ViewError?
        do throws(ViewError) {
            _ = try Mp4Fragment(Mp4Buffer(bytes: moof, start: 0), bytes, movie, of: source, like: nil, &budget)
        } catch let found { error = found }
        return (budget.steps, error)
    }

    /// Reads the samples of a `moov`. Returns the steps, and the error if it failed.
    private func read(tables: [[UInt8]], media: Int) throws -> (steps: Int, error: ViewError?) {
        let tracks = tables.enumerated().flatMap { number, tables in
            Boxes.track(Boxes.protectedEntry(), number: UInt32(number + 1), tables: tables)
        }
        let moov = Boxes.box("moov", tracks)
        let source = try ViewPlace().source(of: moov + [UInt8](repeating: 0, count: media))
        var window = Mp4Window(source)
        let box = try #require(try window.box(at: 0))
        let work = Mp4Work()
        var budget = Mp4Budget(work, media: source.size)
        var error: ViewError?
        do throws(ViewError) {
            let movie = try Mp4Movie(box, &window, work)
            _ = try movie.ranges(&window, before: source.size, &budget)
        } catch let found { error = found }
        return (budget.steps, error)
    }

    private static func fragment(_ tracks: [[UInt8]]) -> [UInt8] {
        Boxes.box("moof", tracks.flatMap { Boxes.box("traf", $0) })
    }

    private static func header(size: UInt32) -> [UInt8] { Boxes.full("tfhd", 0x2_0010, Boxes.numbers(1, size)) }

    @Test("samples of one size that the file has no room for cost nothing, in one track or in thousands")
    func samples() throws {
        let lie = Self.header(size: 0) + Boxes.full("trun", 0, Boxes.numbers(1 << 22))
        for count in [1, 20, 3000] {
            let moof = Self.fragment([[UInt8]](repeating: lie, count: count))
            let (steps, error) = try read(moof, media: 100)
            #expect(steps < moof.count)
            guard case .malformed(let reason) = error else { throw TestFailure("\(String(describing: error))") }
            #expect(reason.contains("4194304 samples of 0 bytes do not fit into the file"))
        }
        let table = { (size: UInt32, count: UInt32) in
            Boxes.full("stsc", 0, Boxes.numbers(1, 1, count, 1)) + Boxes.full("stsz", 0, Boxes.numbers(size, count))
                + Boxes.full("stco", 0, Boxes.numbers(1, 0))
        }
        for count in [1, 20, 200] {
            let (steps, error) = try read(tables: [[UInt8]](repeating: table(1, 1 << 22), count: count), media: 1 << 16)
            #expect(steps < 20 * count + 200)
            #expect(error != nil)
        }
        // Each track has room by itself, but not all together.
        let (steps, error) = try read(tables: [[UInt8]](repeating: table(1, 60_000), count: 20), media: 1 << 16)
        #expect(steps < 4 << 16)
        #expect(error != nil)
        // An honest table: as many samples as bytes.
        let true1 = try read(tables: [table(1, 60_000)], media: 1 << 16)
        #expect(true1.error == nil)
    }

    @Test("the work is a few steps a byte, whatever the boxes say", arguments: 0..<40)
    func lies(seed: UInt64) throws {
        var generator = SeededGenerator(seed: seed)
        func count(_ usual: Int) -> UInt32 {
            switch Int.random(in: 0..<6, using: &generator) {
            case 0: UInt32.random(in: 0...UInt32.max, using: &generator)
            case 1: 1 << UInt32.random(in: 0..<32, using: &generator)
            default: UInt32(usual)
            }
        }
        var refused = 0
        for _ in 0..<20 {
            let media = 1 << Int.random(in: 4..<18, using: &generator)
            var tracks: [[UInt8]] = []
            for _ in 0..<Int.random(in: 1...30, using: &generator) {
                let samples = Int.random(in: 0...40, using: &generator)
                var track = Self.header(size: count(media / max(1, samples)))
                for _ in 0..<Int.random(in: 0...3, using: &generator) {
                    let isListed = Bool.random(using: &generator)
                    let sizes = (0..<samples).flatMap { _ in Boxes.numbers(count(20)) }
                    track += Boxes.full(
                        "trun", isListed ? 0x200 : 0, Boxes.numbers(count(samples)), isListed ? sizes : [])
                }
                let boxes = [
                    Boxes.full(
                        "saiz", 0, [UInt8.random(in: 0...255, using: &generator)], Boxes.numbers(count(samples))),
                    Boxes.full("saio", 0, Boxes.numbers(count(1), 0)),
                    Boxes.full("senc", 2, Boxes.numbers(count(samples)), pattern(samples * 8)),
                    Boxes.full(
                        "sbgp", 0, Array("seig".utf8), Boxes.numbers(count(samples)),
                        (0..<samples).flatMap { _ in Boxes.numbers(count(1), count(0)) }),
                    Boxes.full("sgpd", 0x100_0000, Array("seig".utf8), Boxes.numbers(20, count(2)), pattern(40)),
                ]
                for box in boxes where Bool.random(using: &generator) { track += box }
                tracks.append(track)
            }
            let moof = Self.fragment(tracks)
            let (steps, error) = try read(moof, media: media)
            if error != nil { refused += 1 }
            #expect(steps <= 8 * (moof.count + media), "\(steps) steps for \(moof.count) and \(media) bytes")
        }
        #expect(refused > 0)
    }

    @Test("boxes are counted for the whole moof")
    func boxes() throws {
        let empty = Self.header(size: 0)
        let (steps, error) = try read(Self.fragment([[UInt8]](repeating: empty, count: 100_000)), media: 0)
        #expect(error == .malformed("more than 65536 boxes in one moov or moof"))
        #expect(steps < 1 << 18)
    }

    // MARK: Memory

    /// Returns a film of fragments, each with ranges that take some 30 KiB.
    private func film(fragments: Int) -> [UInt8] {
        let header = Self.header(size: 16)
        var bytes = Self.initSegment
        for _ in 0..<fragments {
            var moof: [UInt8] = []
            for _ in 0..<2 {
                let run = Boxes.full("trun", 1, Boxes.numbers(1500, UInt32(moof.count + 8)))
                moof = Boxes.box("moof", Boxes.box("traf", header, run))
            }
            bytes += moof + Boxes.box("mdat", [UInt8](repeating: 0, count: 16 * 1500))
        }
        return bytes
    }

    private func index(_ source: SourceFile, _ work: Mp4Work) throws -> Mp4Index {
        try protectedPlan(of: source, work).index(source)
    }

    @Test("all open files share one limit of memory, and the fragments used last stay")
    func memory() throws {
        let work = Mp4Work(limit: 1 << 20)
        let bytes = film(fragments: 20)
        let source = try ViewPlace().source(of: bytes)
        var indexes = try (0..<10).map { _ in try index(source, work) }
        var largest = 0
        for offset in stride(from: Self.initSegment.count, to: bytes.count, by: 24_000) {
            for index in indexes {
                #expect(try index.fragment(at: UInt64(offset)).ranges.all.count == 1500)
                largest = max(largest, work.memory)
            }
        }
        #expect(largest <= 1 << 20)
        #expect(largest > 1 << 19)
        indexes = []
        #expect(work.memory == 0)
    }

    @Test("a file that needs more memory than there is gets an error of its own, which is no damage")
    func noMemory() throws {
        let work = Mp4Work(limit: 100_000)
        let table =
            Boxes.full("stsc", 0, Boxes.numbers(1, 1, 20_000, 1)) + Boxes.full("stsz", 0, Boxes.numbers(16, 20_000))
            + Boxes.full("stco", 0, Boxes.numbers(1, 0))
        let moov = Boxes.box("moov", Boxes.track(Boxes.protectedEntry(), tables: table))
        let source = try ViewPlace().source(of: moov + [UInt8](repeating: 0, count: 320_000))
        do {
            _ = try index(source, work).fragment(at: 0)
            Issue.record("no error")
        } catch ViewError.store(.unavailable(.noMemory, _)) {}
        #expect(work.memory == 0)
        #expect(try index(source, Mp4Work()).fragment(at: 0).ranges.all.count == 20_000)
    }

    // MARK: Interruption

    @Test("a lock and the end of the mount stop a reading in the middle, and after an unlock it goes on")
    func interruption() throws {
        let interruption = Interruption()
        let work = Mp4Work(interruption)
        let source = try ViewPlace().source(of: film(fragments: 1) + [UInt8](repeating: 0, count: 100_000))
        let index = try index(source, work)
        let asked = Mutex(0)
        let media = UInt64(Self.initSegment.count + 1000)
        // The lock begins after the first check.
        interruption.setLock {
            asked.withLock {
                $0 += 1
                return $0 > 1
            }
        }
        #expect(throws: ViewError.store(.locked)) { try index.fragment(at: media) }
        #expect(asked.withLock { $0 } == 2)
        interruption.setLock { false }
        #expect(try index.fragment(at: media).ranges.all.count == 1500)
        interruption.end()
        #expect(throws: ViewError.store(.refused(.socketNotConnected))) { try self.index(source, work).fragment(at: 1) }
    }

    @Test("a long reading looks for a lock again and again")
    func checks() throws {
        let interruption = Interruption()
        let asked = Mutex(0)
        interruption.setLock {
            asked.withLock {
                $0 += 1
                return $0 > 5
            }
        }
        let many = Self.header(size: 1) + Boxes.full("trun", 0, Boxes.numbers(1 << 20))
        let (steps, error) = try read(Self.fragment([many]), media: 1 << 20, Mp4Work(interruption))
        #expect(error == .store(.locked))
        #expect(steps < (1 << 20) + 100_000)
    }

    // MARK: Order of reads

    /// Returns fragments of 100 samples, with these sizes in a `sidx`.
    private func indexed(_ sizes: [UInt32], _ fragments: [[UInt8]]) -> [UInt8] {
        let references = sizes.flatMap { Boxes.numbers($0, 1000, 0x9000_0000) }
        let sidx = Boxes.full("sidx", 0, Boxes.numbers(1, 1000, 0, 0, UInt32(sizes.count)), references)
        return Self.initSegment + sidx + fragments.flatMap(\.self)
    }

    @Test("whatever a sidx says, bytes and errors are the same in every order of reads", arguments: 0..<30)
    func order(seed: UInt64) throws {
        var generator = SeededGenerator(seed: seed)
        var fragments: [[UInt8]] = []
        for number in 0..<12 {
            // Some media begin like a fragment.
            let fake = number % 3 == 0 ? Self.fragment([Self.header(size: 0)]) : []
            let media = fake + [UInt8](repeating: 0xA5, count: 600)
            fragments.append(Array(film(fragments: 1).dropFirst(Self.initSegment.count)) + Boxes.box("mdat", media))
        }
        var sizes = fragments.map { UInt32($0.count) }
        for _ in 0..<Int.random(in: 1...3, using: &generator) {
            // Add a lie, and mostly another one to make up for it.
            let (one, other) = (Int.random(in: 0..<11, using: &generator), Int.random(in: 0..<11, using: &generator))
            let by = UInt32([8, 608, 616, 24_000].randomElement(using: &generator) ?? 8)
            sizes[one] += by
            if Int.random(in: 0..<4, using: &generator) > 0, sizes[other] > by { sizes[other] -= by }
        }
        let bytes = indexed(sizes, fragments)
        let place = try ViewPlace()
        let source = try place.source(of: bytes)
        let offsets = Array(stride(from: UInt64(0), to: source.size, by: 997))
        func found(_ index: Mp4Index, _ offset: UInt64) -> String {
            do throws(ViewError) {
                let fragment = try index.fragment(at: offset)
                return "\(fragment.bytes) \(fragment.ranges.all.first.map { "\($0)" } ?? "")"
            } catch { return "\(error)" }
        }
        let inOrder = try index(source, Mp4Work())
        let expected = offsets.map { found(inOrder, $0) }
        for _ in 0..<3 {
            let index = try index(source, Mp4Work())
            var wrong: [String] = []
            for position in offsets.indices.shuffled(using: &generator) {
                let result = found(index, offsets[position])
                if result != expected[position] {
                    wrong.append("\(offsets[position]): \(result), not \(expected[position])")
                }
            }
            #expect(wrong.isEmpty, "\(wrong.first ?? "")")
        }
        // An honest `sidx` finds each fragment.
        let honest = try index(place.source(of: indexed(fragments.map { UInt32($0.count) }, fragments)), Mp4Work())
        #expect(try honest.fragment(at: UInt64(bytes.count - 1)).ranges.all.count == 1500)
    }
}
