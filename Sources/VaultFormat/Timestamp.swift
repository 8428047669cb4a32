/// Times as `vaultfs.json` spells them: exactly `YYYY-MM-DDThh:mm:ssZ` (FileFormat, vaultfs.json).
package enum Timestamp {
    private static let template: [UInt8] = Array("dddd-dd-ddTdd:dd:ddZ".utf8)

    /// True if `text` is a time that exists: a real day, hours to 23, minutes and seconds to 59.
    package static func isValid(_ text: [UInt8]) -> Bool { seconds(text) != nil }

    /// Seconds since 1970-01-01T00:00:00Z (POSIX.1-2024, XBD 4.19). Nil for other text.
    package static func seconds(_ text: some Collection<UInt8>) -> Int64? {
        guard let parts = parts(Array(text)) else { return nil }
        let (year, month, day) = (parts[0], parts[1], parts[2])
        let leapDays = { (year: Int) in year / 4 - year / 100 + year / 400 }
        // Leap days repeat every 400 years. Adding them keeps every term positive.
        let daysBefore = (year - 1970) * 365 + leapDays(year + 399) - leapDays(1969 + 400)
        let days = (1..<month).reduce(daysBefore + day - 1) { $0 + Self.days(in: $1, of: year) }
        return Int64(((days * 24 + parts[3]) * 60 + parts[4]) * 60 + parts[5])
    }

    /// Year, month, day, hour, minute, second.
    private static func parts(_ text: [UInt8]) -> [Int]? {
        guard text.count == template.count else { return nil }
        for (byte, expected) in zip(text, template) {
            let isDigit = (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte)
            guard expected == UInt8(ascii: "d") ? isDigit : byte == expected else { return nil }
        }
        func number(_ range: Range<Int>) -> Int { text[range].reduce(0) { $0 * 10 + Int($1 - UInt8(ascii: "0")) } }
        let (year, month, day) = (number(0..<4), number(5..<7), number(8..<10))
        guard (1...12).contains(month), (1...days(in: month, of: year)).contains(day) else { return nil }
        let (hour, minute, second) = (number(11..<13), number(14..<16), number(17..<19))
        return hour <= 23 && minute <= 59 && second <= 59 ? [year, month, day, hour, minute, second] : nil
    }

    private static func days(in month: Int, of year: Int) -> Int {
        switch month {
        case 2: year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) ? 29 : 28
        case 4, 6, 9, 11: 30
        default: 31
        }
    }
}
