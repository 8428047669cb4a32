/// How long work on files will still take, by the time that files and bytes have taken so far. A small file takes as long as
/// a hundred times its bytes, so neither alone tells it. One thread.
struct WorkEstimate {
    /// The work that a file is besides its bytes, in bytes, as long as the work itself does not show it.
    static let costOfFile = Double(128 << 10)
    /// The weight of an interval in the next one. After ten seconds of five intervals each, a third is left.
    private static let memory = 0.98

    private var last = (files: 0.0, units: 0.0, seconds: 0.0)
    /// Sums of products over the intervals, of files (f), units of `costOfFile` bytes (u) and seconds (t).
    private var ff = 0.0, fu = 0.0, uu = 0.0, ft = 0.0, ut = 0.0

    /// Notes the work done since the start, without what was done before it.
    mutating func note(files: Int, bytes: UInt64, seconds: Double) {
        let now = (files: Double(files), units: Double(bytes) / Self.costOfFile, seconds: seconds)
        let (f, u, t) = (now.files - last.files, now.units - last.units, now.seconds - last.seconds)
        last = now
        ff = ff * Self.memory + f * f
        fu = fu * Self.memory + f * u
        uu = uu * Self.memory + u * u
        ft = ft * Self.memory + f * t
        ut = ut * Self.memory + u * t
    }

    /// Seconds for the rest. Nil if nothing is known.
    func secondsLeft(files: Int, bytes: UInt64) -> Double? {
        // Least squares for a file's time x and a unit's time y, with x = y as one more, weak observation: if all files are
        // alike, or all that was done is a part of one file, the others do not tell x from y.
        let determinant = (ff + 1) * (uu + 1) - (fu - 1) * (fu - 1)
        guard determinant > 0, ft + ut > 0 else { return nil }
        var x = (ft * (uu + 1) - ut * (fu - 1)) / determinant
        var y = (ut * (ff + 1) - ft * (fu - 1)) / determinant
        if x < 0 { (x, y) = (0, ut / uu) } else if y < 0 { (x, y) = (ft / ff, 0) }
        return Double(files) * x + Double(bytes) / Self.costOfFile * y
    }
}
