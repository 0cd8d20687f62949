//! Learning rates.

use crate::config::Config;
use crate::fixture::Wrong;
use fornax_nn::schedule::{
    Anneal, Better, Chained, Constant, CosineAnnealing, CosineAnnealingWarmRestarts, Cyclic, Exponential, Linear,
    MultiStep, OneCycle, Peaks, PlateauState, Polynomial, ReduceOnPlateau, Schedule, Sequential, Step, Threshold,
};
use serde_json::Value;

pub(crate) fn check(case: &Value) -> Result<(), Wrong> {
    let want: Vec<f64> = case["lr"].as_array().unwrap().iter().map(|lr| lr.as_f64().unwrap()).collect();
    let base = case["base_lr"].as_f64().unwrap();
    let name = case["scheduler"].as_str().unwrap();
    let config = Config(&case["config"]);
    let got: Vec<f64> = if name == "ReduceLROnPlateau" {
        let mut plateau = plateau(&config);
        let metrics = case["metrics"].as_array().unwrap();
        let mut lr = base;
        let later = metrics.iter().map(|metric| {
            lr = plateau.step(metric.as_f64().unwrap(), lr);
            lr
        });
        std::iter::once(base).chain(later).collect()
    } else {
        let schedule = schedule(name, &config)?;
        (0..want.len()).map(|step| schedule.lr(base, step as u64)).collect()
    };
    let tolerance = Config(&case["tol"]);
    let (rtol, atol) = (tolerance.f64("rtol", 1e-9), tolerance.f64("atol", 1e-12));
    for (step, (got, want)) in got.iter().zip(&want).enumerate() {
        if (got - want).abs() > atol + rtol * want.abs() {
            return Err(format!("step {step}: got {got}, want {want}").into());
        }
    }
    Ok(())
}

fn schedule(name: &str, config: &Config<'_>) -> Result<Box<dyn Schedule>, Wrong> {
    let number = |name: &str, default: usize| config.usize(name, default) as u64;
    let milestones = || config.0["milestones"].as_array().unwrap().iter().map(|step| step.as_u64().unwrap());
    let parts = || {
        let part = |part: &Value| schedule(part["scheduler"].as_str().unwrap(), &Config(&part["config"]));
        config.0["schedulers"].as_array().unwrap().iter().map(part).collect::<Result<Vec<_>, _>>()
    };
    Ok(match name {
        "StepLR" => Box::new(Step { step_size: number("step_size", 1), gamma: config.f64("gamma", 0.1) }),
        "MultiStepLR" => Box::new(MultiStep { milestones: milestones().collect(), gamma: config.f64("gamma", 0.1) }),
        "ConstantLR" => {
            Box::new(Constant { factor: config.f64("factor", 1.0 / 3.0), total_iters: number("total_iters", 5) })
        }
        "LinearLR" => Box::new(Linear {
            start_factor: config.f64("start_factor", 1.0 / 3.0),
            end_factor: config.f64("end_factor", 1.0),
            total_iters: number("total_iters", 5),
        }),
        "ExponentialLR" => Box::new(Exponential { gamma: config.f64("gamma", 0.1) }),
        "PolynomialLR" => {
            Box::new(Polynomial { total_iters: number("total_iters", 5), power: config.f64("power", 1.0) })
        }
        "CosineAnnealingLR" => {
            Box::new(CosineAnnealing { t_max: number("T_max", 1), eta_min: config.f64("eta_min", 0.0) })
        }
        "CosineAnnealingWarmRestarts" => Box::new(CosineAnnealingWarmRestarts {
            t_0: number("T_0", 1),
            t_mult: number("T_mult", 1),
            eta_min: config.f64("eta_min", 0.0),
        }),
        "OneCycleLR" => {
            let steps = number("epochs", 0) * number("steps_per_epoch", 0);
            Box::new(OneCycle {
                pct_start: config.f64("pct_start", 0.3),
                anneal: if config.str("anneal_strategy", "cos") == "cos" { Anneal::Cosine } else { Anneal::Linear },
                div_factor: config.f64("div_factor", 25.0),
                final_div_factor: config.f64("final_div_factor", 1e4),
                three_phase: config.bool("three_phase", false),
                ..OneCycle::new(config.f64("max_lr", 0.0), number("total_steps", steps as usize))
            })
        }
        "CyclicLR" => Box::new(Cyclic {
            step_size_up: number("step_size_up", 2000),
            step_size_down: config.0["step_size_down"].as_u64(),
            peaks: match config.str("mode", "triangular") {
                "triangular2" => Peaks::Triangular2,
                "exp_range" => Peaks::ExpRange(config.f64("gamma", 1.0)),
                _ => Peaks::Triangular,
            },
            ..Cyclic::new(config.f64("base_lr", 0.0), config.f64("max_lr", 0.0))
        }),
        "SequentialLR" => {
            let mut parts = parts()?.into_iter();
            let first = Sequential::new(parts.next().unwrap());
            Box::new(milestones().zip(parts).fold(first, |sequence, (step, part)| sequence.then(step, part)))
        }
        "ChainedScheduler" => Box::new(Chained::new(parts()?)),
        _ => return Err(Wrong::Missing),
    })
}

fn plateau(config: &Config<'_>) -> ReduceOnPlateau {
    let threshold = config.f64("threshold", 1e-4);
    ReduceOnPlateau {
        better: if config.str("mode", "min") == "min" { Better::Smaller } else { Better::Larger },
        factor: config.f64("factor", 0.1),
        patience: config.usize("patience", 10) as u64,
        threshold: match config.str("threshold_mode", "rel") {
            "rel" => Threshold::Relative(threshold),
            _ => Threshold::Absolute(threshold),
        },
        cooldown: config.usize("cooldown", 0) as u64,
        min_lr: config.f64("min_lr", 0.0),
        eps: config.f64("eps", 1e-8),
        state: PlateauState::default(),
    }
}
