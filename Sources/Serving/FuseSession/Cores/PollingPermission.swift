internal import Glibc
internal import LinuxSystem
internal import SystemPackage

/// Decides whether a worker may poll, which keeps a core busy. Not on battery, where it would cost charge, nor beside
/// programs that wait for a core. Used by one thread.
struct PollingPermission {
    /// The number of samples of the load between two looks at the power supplies.
    private static let powerInterval = 256

    /// True if no thread waits for a core: one fewer may run or wait than this, and the sampling thread runs too.
    private let cores: IdleCores
    private let supplies: FilePath
    private var isOnBattery = false
    private var samples = 0
    /// The moving average of the samples in which a thread waited for a core, times 256.
    private var waiting = 0

    init(
        cores: IdleCores = IdleCores(of: sysconf(Int32(_SC_NPROCESSORS_ONLN)) + 2),
        supplies: FilePath = "/sys/class/power_supply"
    ) {
        (self.cores, self.supplies) = (cores, supplies)
    }

    /// True if a thread waited for a core in most of the last samples.
    var isBusy: Bool { waiting >= 128 }

    /// Samples the load. Returns true if a worker may poll until the next sample.
    mutating func sample() -> Bool {
        if samples % Self.powerInterval == 0 { isOnBattery = Self.isDischarging(supplies) }
        samples += 1
        waiting += ((cores.isThereOne ? 0 : 256) - waiting) / 4
        return !isOnBattery && !isBusy
    }

    /// True if a battery of the machine itself is being discharged (Documentation/ABI/testing/sysfs-class-power).
    private static func isDischarging(_ supplies: FilePath) -> Bool {
        guard let directory = try? Descriptor(path: supplies, flags: O_RDONLY | O_DIRECTORY) else { return false }
        var reader = DirectoryReader(directory)
        while let entry = try? reader.next() {
            let supply = supplies.appending(String(decoding: entry.bytes, as: UTF8.self))
            let value = { (name: String) in
                let file = try? Descriptor(path: supply.appending(name), flags: O_RDONLY)
                return String(decoding: (try? file?.readToEnd(limit: 64)) ?? [], as: UTF8.self)
            }
            // A mouse has a battery too, whose scope is "Device". Do not read its status, because the kernel asks the
            // mouse for it (hidinput_get_battery_property in drivers/hid/hid-input.c).
            if value("type") == "Battery\n", value("scope") != "Device\n", value("status") == "Discharging\n" {
                return true
            }
        }
        return false
    }
}
