/// The speed of work on files, measured from the recent past. One thread.
struct WorkRate {
    /// The fixed work for each file, in bytes: a small file takes as long as a hundred times its bytes.
    static let costOfFile = Double(128 << 10)
    /// The weight of earlier intervals at each update. After ten seconds, at five updates a second, a third is left.
    private static let memory = 0.98

    private var last = (work: 0.0, seconds: 0.0)
    private var work = 0.0, seconds = 0.0

    /// Updates the rate with the work done since the start, in bytes.
    mutating func update(work now: Double, at time: Double) {
        work = work * Self.memory + now - last.work
        seconds = seconds * Self.memory + time - last.seconds
        last = (now, time)
    }

    /// Returns the seconds for the rest, or nil before any work was done.
    func secondsLeft(for rest: Double) -> Double? { work > 0 ? rest * seconds / work : nil }
}
