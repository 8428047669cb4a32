internal import Glibc

/// What one benchmark found: the time of one operation, in several runs.
struct Measurement: Encodable {
    let name: String
    /// Bytes that one operation works on; 0 where that says nothing.
    let bytes: Int
    /// The median.
    let nanoseconds: Double
    let minimumNanoseconds: Double
    let maximumNanoseconds: Double

    /// 10⁹ bytes a second.
    let gigabytesPerSecond: Double?

    /// - Parameter times: nanoseconds per operation, one for each run; at least one.
    init(_ name: String, bytes: Int, times: [Double]) {
        let sorted = times.sorted()
        self.name = name
        self.bytes = bytes
        nanoseconds = sorted[sorted.count / 2]
        minimumNanoseconds = sorted[0]
        maximumNanoseconds = sorted[sorted.count - 1]
        gigabytesPerSecond = bytes == 0 ? nil : Double(bytes) / nanoseconds
    }
}

/// Takes the time of operations, and prints each as it is done. One thread.
struct Stopwatch {
    let runs: Int
    /// The time that one run is to take at least, in nanoseconds.
    let runTime: Double
    /// Only benchmarks in whose names this is.
    let filter: String
    let isQuiet: Bool
    private(set) var measurements: [Measurement] = []

    /// - Parameters:
    ///   - count: how many operations one call of `body` is.
    ///   - bytes: how many bytes one operation works on; 0 where that says nothing.
    mutating func measure(_ name: String, count: Int = 1, bytes: Int = 0, _ body: () throws -> Void) throws {
        guard filter.isEmpty || name.contains(filter) else { return }
        var calls = 1
        // Doubled until a run is long enough for the clock; that warms the caches up as well.
        while try Self.time(calls, body) < runTime { calls *= 2 }
        let times = try (0..<runs).map { _ in try Self.time(calls, body) / Double(calls * count) }
        let measurement = Measurement(name, bytes: bytes, times: times)
        measurements.append(measurement)
        if !isQuiet { Self.show(measurement) }
    }

    private static func time(_ calls: Int, _ body: () throws -> Void) throws -> Double {
        let start = ContinuousClock.now
        for _ in 0..<calls { try body() }
        return (ContinuousClock.now - start) / .nanoseconds(1)
    }

    static func showHead() {
        print(pad("ns per chunk, or per operation", 44, atEnd: true), terminator: "")
        print(["median", "minimum", "maximum", "GB/s"].map { pad($0, 11) }.joined())
    }

    private static func show(_ measurement: Measurement) {
        let columns = [
            fixed(measurement.nanoseconds, 1), fixed(measurement.minimumNanoseconds, 1),
            fixed(measurement.maximumNanoseconds, 1),
            measurement.gigabytesPerSecond.map { fixed($0, 2) } ?? "",
        ]
        print(pad(measurement.name, 44, atEnd: true) + columns.map { pad($0, 11) }.joined())
        fflush(nil)
    }

    private static func pad(_ text: String, _ width: Int, atEnd: Bool = false) -> String {
        let space = String(repeating: " ", count: max(0, width - text.count))
        return atEnd ? text + space : space + text
    }

    /// With one or two digits after the point.
    private static func fixed(_ value: Double, _ digits: Int) -> String {
        let scale = digits == 1 ? 10 : 100
        let scaled = Int((value * Double(scale)).rounded())
        return "\(scaled / scale)." + (digits == 2 && scaled % scale < 10 ? "0" : "") + "\(scaled % scale)"
    }
}
