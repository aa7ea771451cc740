// SPDX-License-Identifier: GPL-2.0-only
/*
 * A power domain, a clock, a regulator and reset lines for the fake NPU. The first
 * three write down what is asked of them: on the real board the firmware hangs when
 * the rate is changed with the domain off; here that is a line in the log. A reset
 * clears the core's registers, and is counted where whoever answers as the NPU can
 * see it.
 */

#include <linux/clk-provider.h>
#include <linux/io.h>
#include <linux/iommu.h>
#include <linux/module.h>
#include <linux/of.h>
#include <linux/platform_device.h>
#include <linux/pm_domain.h>
#include <linux/regulator/driver.h>
#include <linux/regulator/of_regulator.h>
#include <linux/reset-controller.h>

#define say(format, ...) pr_notice("fakepower: " format "\n", ##__VA_ARGS__)

static bool fail_rate;
module_param(fail_rate, bool, 0644);
MODULE_PARM_DESC(fail_rate, "Refuse every change of the rate");

static bool domain_is_on;
static unsigned long rate = 200000000;

static int domain_on(struct generic_pm_domain *domain)
{
	domain_is_on = true;
	say("domain on");
	return 0;
}

static int domain_off(struct generic_pm_domain *domain)
{
	domain_is_on = false;
	say("domain off");
	return 0;
}

static struct generic_pm_domain domain = {
	.name = "fake-npu",
	.power_on = domain_on,
	.power_off = domain_off,
};

static unsigned long clock_recalc(struct clk_hw *hw, unsigned long parent)
{
	return rate;
}

static int clock_determine(struct clk_hw *hw, struct clk_rate_request *request)
{
	/* Of set_rate() the clock framework ignores the result. */
	if (fail_rate) {
		say("rate %lu refused", request->rate);
		return -EIO;
	}
	request->rate = clamp(request->rate, 200000000ul, 1000000000ul);
	return 0;
}

static int clock_set(struct clk_hw *hw, unsigned long wanted, unsigned long parent)
{
	if (!domain_is_on)
		say("VIOLATION: rate %lu with the domain off", wanted);
	rate = wanted;
	say("rate %lu", wanted);
	return 0;
}

static const struct clk_ops clock_ops = {
	.recalc_rate = clock_recalc,
	.determine_rate = clock_determine,
	.set_rate = clock_set,
};

static struct clk_hw clock = {
	.init = CLK_HW_INIT_NO_PARENT("fake-npu-clk", &clock_ops, CLK_GET_RATE_NOCACHE),
};

static unsigned int selector = 20;

static int rail_get(struct regulator_dev *rail)
{
	return selector;
}

static int rail_set(struct regulator_dev *rail, unsigned int wanted)
{
	selector = wanted;
	say("voltage %u uV", 700000 + wanted * 5000);
	return 0;
}

static const struct regulator_ops rail_ops = {
	.list_voltage = regulator_list_voltage_linear,
	.get_voltage_sel = rail_get,
	.set_voltage_sel = rail_set,
};

static const struct regulator_desc rail = {
	.name = "fake-npu-rail",
	.of_match = of_match_ptr("rail"),
	.type = REGULATOR_VOLTAGE,
	.owner = THIS_MODULE,
	.ops = &rail_ops,
	.min_uV = 700000,
	.uV_step = 5000,
	.n_voltages = 61,
};

/* As in board.dts: two lines a core; the counts lie where no core has registers. */
#define WINDOW 0x7f000000
#define CORE_STRIDE 0x10000
#define RESET_COUNTS 0x7f1f0000
#define CORES 3

static const char * const names[CORES] = { "7f000000.npu", "7f010000.npu", "7f020000.npu" };
static void __iomem *reset_counts, *pc[CORES];

/* Until its reset a hung core may still write where its domain leads. */
static void tell_what_is_attached(unsigned int core)
{
	struct device *dev = bus_find_device_by_name(&platform_bus_type, NULL, names[core]);
	struct iommu_domain *domain = dev ? iommu_get_domain_for_dev(dev) : NULL;

	say("reset of core %u with %s attached", core,
	    domain && domain->type == IOMMU_DOMAIN_UNMANAGED ? "its domain" : "nothing");
	put_device(dev);
}

static int reset_assert(struct reset_controller_dev *rcdev, unsigned long id)
{
	unsigned int core = id / 2;

	if (id % 2 == 0) {
		tell_what_is_attached(core);
		memset_io(pc[core], 0, 0x40);
		writel(readl(reset_counts + 4 * core) + 1, reset_counts + 4 * core);
	}
	return 0;
}

static int reset_deassert(struct reset_controller_dev *rcdev, unsigned long id)
{
	return 0;
}

static const struct reset_control_ops reset_ops = {
	.assert = reset_assert,
	.deassert = reset_deassert,
};

static struct reset_controller_dev resets = {
	.ops = &reset_ops,
	.owner = THIS_MODULE,
	.nr_resets = 2 * CORES,
};

static int resets_register(struct device *dev)
{
	int i;

	reset_counts = devm_ioremap(dev, RESET_COUNTS, 0x1000);
	if (!reset_counts)
		return -ENOMEM;
	for (i = 0; i < CORES; i++) {
		pc[i] = devm_ioremap(dev, WINDOW + i * CORE_STRIDE, 0x1000);
		if (!pc[i])
			return -ENOMEM;
		writel(0, reset_counts + 4 * i);
	}
	resets.of_node = dev->of_node;
	return devm_reset_controller_register(dev, &resets);
}

static int fakepower_probe(struct platform_device *pdev)
{
	struct device *dev = &pdev->dev;
	struct regulator_config config = { .dev = dev };
	struct regulator_dev *rdev;
	int err;

	err = devm_clk_hw_register(dev, &clock);
	if (err)
		return err;
	err = devm_of_clk_add_hw_provider(dev, of_clk_hw_simple_get, &clock);
	if (err)
		return err;

	rdev = devm_regulator_register(dev, &rail, &config);
	if (IS_ERR(rdev))
		return PTR_ERR(rdev);

	err = resets_register(dev);
	if (err)
		return err;

	err = pm_genpd_init(&domain, NULL, true);
	if (err)
		return err;

	return of_genpd_add_provider_simple(dev->of_node, &domain);
}

static const struct of_device_id fakepower_match[] = {
	{ .compatible = "rocket-test,fake-power" },
	{ }
};

static struct platform_driver fakepower_driver = {
	.probe = fakepower_probe,
	.driver = {
		.name = "fakepower",
		.of_match_table = fakepower_match,
		.suppress_bind_attrs = true,
	},
};
/* Never unloaded: nothing here is undone. */
builtin_platform_driver(fakepower_driver);

MODULE_DESCRIPTION("Power domain, clock, regulator and resets of a fake NPU");
MODULE_LICENSE("GPL");
