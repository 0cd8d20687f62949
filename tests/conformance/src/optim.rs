//! Trajectories of optimizers.

use crate::config::Config;
use crate::fixture::{Suite, Tensors, Wrong, compare};
use fornax_nn::optim::{
    Adadelta, Adafactor, Adagrad, Adam, AdamW, Adamax, AdjustLr, Asgd, Lbfgs, LineSearch, Muon, NAdam, Optimizer,
    RAdam, RmsProp, Rprop, Selection, Sgd,
};
use fornax_nn::{Module, Param};
use fornax_tensor::{DType, Gradients, Tensor};
use serde_json::Value;

/// A network with one hidden layer, and its loss.
#[derive(Module, Clone, Debug)]
struct Problem {
    #[module(rename = "W1")]
    w1: Param,
    b1: Param,
    #[module(rename = "W2")]
    w2: Param,
    b2: Param,
}

impl Problem {
    fn loss(&self, data: &Tensors) -> Tensor {
        let hidden = (data["X"].matmul(&self.w1) + &*self.b1).tanh();
        (hidden.matmul(&self.w2) + &*self.b2 - &data["Y"]).square().mean(())
    }

    fn given(&self, data: &Tensors, step: i64) -> Gradients {
        let mut gradients = Gradients::default();
        for (name, param) in self.named_parameters() {
            gradients.insert(param, data[&format!("grad.{name}")].narrow(0, step, 1).squeeze(0));
        }
        gradients
    }
}

pub(crate) fn check(case: &Value, suite: &Suite) -> Result<(), Wrong> {
    let data = suite.file(case["file"].as_str().unwrap_or_default())?;
    let param = |name: &str| Param::new(&data[&format!("init.{name}")]);
    let mut model = Problem { w1: param("W1"), b1: param("b1"), w2: param("W2"), b2: param("b2") };
    let params = case["params"].as_array().unwrap();
    let owned: Vec<String> = params.iter().map(|name| name.as_str().unwrap().to_string()).collect();
    let tolerance = Config(&case["tol"]);
    let (rtol, atol) = (tolerance.f64("rtol", 1e-5), tolerance.f64("atol", 5e-6));
    let wanted = |key: &Value, step: i64| data[key.as_str().unwrap()].narrow(0, step, 1).squeeze(0);
    let mut optimizer = Algorithm::new(case, &owned)?;
    for step in 0..case["steps"].as_i64().unwrap() {
        let loss = model.loss(&data);
        if case["loss"].is_string() {
            compare(&loss.detach(), &wanted(&case["loss"], step), rtol.max(1e-5), atol)
                .map_err(|why| format!("loss of step {step}: {why}"))?;
        }
        match &mut optimizer {
            Algorithm::Gradient(optimizer) => {
                let gradients = if case["mode"] == "given" { model.given(&data, step) } else { loss.backward() };
                optimizer.step(&mut model, &gradients);
            }
            Algorithm::Lbfgs(optimizer) => drop(optimizer.step(&mut model, |model| model.loss(&data))),
        }
        for (name, param) in model.named_parameters().into_iter().filter(|(name, _)| owned.contains(name)) {
            compare(&param.detach(), &wanted(&case["trajectory"][&name], step), rtol, atol)
                .map_err(|why| format!("{name} after step {step}: {why}"))?;
        }
    }
    Ok(())
}

enum Algorithm {
    Gradient(Box<dyn Optimizer>),
    Lbfgs(Box<Lbfgs>),
}

impl Algorithm {
    fn new(case: &Value, owned: &[String]) -> Result<Algorithm, Wrong> {
        let config = Config(&case["config"]);
        let weight_decay = |default| config.f64("weight_decay", default);
        let betas = || config.pair("betas", (0.9, 0.999));
        let eps = |default| config.f64("eps", default);
        // `finish` adds what all of them have.
        macro_rules! boxed {
            ($optimizer:expr) => {{
                let owned = owned.to_vec();
                let optimizer = $optimizer.maximize(config.bool("maximize", false));
                Box::new(optimizer.only(Selection::of(move |path, _| owned.iter().any(|name| name == path))))
            }};
        }
        let optimizer: Box<dyn Optimizer> = match case["optimizer"].as_str().unwrap() {
            "SGD" => boxed!(
                Sgd::new(config.f64("lr", 1e-3))
                    .momentum(config.f64("momentum", 0.0))
                    .dampening(config.f64("dampening", 0.0))
                    .weight_decay(weight_decay(0.0))
                    .nesterov(config.bool("nesterov", false))
            ),
            "Adam" => boxed!(
                Adam::new(config.f64("lr", 1e-3))
                    .betas(betas())
                    .eps(eps(1e-8))
                    .weight_decay(weight_decay(0.0))
                    .amsgrad(config.bool("amsgrad", false))
            ),
            "AdamW" => boxed!(
                AdamW::new(config.f64("lr", 1e-3))
                    .betas(betas())
                    .eps(eps(1e-8))
                    .weight_decay(weight_decay(0.01))
                    .amsgrad(config.bool("amsgrad", false))
            ),
            "Adamax" => boxed!(
                Adamax::new(config.f64("lr", 2e-3)).betas(betas()).eps(eps(1e-8)).weight_decay(weight_decay(0.0))
            ),
            "NAdam" => boxed!(
                NAdam::new(config.f64("lr", 2e-3))
                    .betas(betas())
                    .eps(eps(1e-8))
                    .weight_decay(weight_decay(0.0))
                    .momentum_decay(config.f64("momentum_decay", 4e-3))
                    .decoupled_weight_decay(config.bool("decoupled_weight_decay", false))
            ),
            "RAdam" => boxed!(
                RAdam::new(config.f64("lr", 1e-3))
                    .betas(betas())
                    .eps(eps(1e-8))
                    .weight_decay(weight_decay(0.0))
                    .decoupled_weight_decay(config.bool("decoupled_weight_decay", false))
            ),
            "Adagrad" => boxed!(
                Adagrad::new(config.f64("lr", 1e-2))
                    .lr_decay(config.f64("lr_decay", 0.0))
                    .weight_decay(weight_decay(0.0))
                    .initial_accumulator_value(config.f64("initial_accumulator_value", 0.0))
                    .eps(eps(1e-10))
            ),
            "Adadelta" => boxed!(
                Adadelta::new(config.f64("lr", 1.0))
                    .rho(config.f64("rho", 0.9))
                    .eps(eps(1e-6))
                    .weight_decay(weight_decay(0.0))
            ),
            "RMSprop" => boxed!(
                RmsProp::new(config.f64("lr", 1e-2))
                    .alpha(config.f64("alpha", 0.99))
                    .eps(eps(1e-8))
                    .weight_decay(weight_decay(0.0))
                    .momentum(config.f64("momentum", 0.0))
                    .centered(config.bool("centered", false))
            ),
            "Rprop" => boxed!(
                Rprop::new(config.f64("lr", 1e-2))
                    .etas(config.pair("etas", (0.5, 1.2)))
                    .step_sizes(config.pair("step_sizes", (1e-6, 50.0)))
            ),
            "ASGD" => boxed!(
                Asgd::new(config.f64("lr", 1e-2))
                    .lambd(config.f64("lambd", 1e-4))
                    .alpha(config.f64("alpha", 0.75))
                    .t0(config.f64("t0", 1e6))
                    .weight_decay(weight_decay(0.0))
            ),
            "Adafactor" => boxed!(
                Adafactor::new(config.f64("lr", 1e-2))
                    .beta2_decay(config.f64("beta2_decay", -0.8))
                    .eps((config.0["eps"][0].as_f64(), config.0["eps"][1].as_f64().unwrap_or(1e-3)))
                    .d(config.f64("d", 1.0))
                    .weight_decay(weight_decay(0.0))
            ),
            "Muon" => boxed!(
                Muon::new(config.f64("lr", 1e-3))
                    .weight_decay(weight_decay(0.1))
                    .momentum(config.f64("momentum", 0.95))
                    .nesterov(config.bool("nesterov", true))
                    .eps(eps(1e-7))
                    .ns_steps(config.usize("ns_steps", 5))
                    .adjust_lr(match config.str("adjust_lr_fn", "original") {
                        "match_rms_adamw" => AdjustLr::MatchRmsAdamW,
                        _ => AdjustLr::Original,
                    })
                    .ns_dtype(if case["newton_schulz"] == "float" { DType::F32 } else { DType::BF16 })
            ),
            "LBFGS" => {
                let mut optimizer = Lbfgs::new(config.f64("lr", 1.0))
                    .max_iter(config.usize("max_iter", 20))
                    .tolerance_grad(config.f64("tolerance_grad", 1e-7))
                    .tolerance_change(config.f64("tolerance_change", 1e-9))
                    .history_size(config.usize("history_size", 100));
                optimizer.max_eval = config.0["max_eval"].as_u64().map(|count| count as usize);
                if config.str("line_search_fn", "") == "strong_wolfe" {
                    optimizer = optimizer.line_search(LineSearch::StrongWolfe);
                }
                return Ok(Algorithm::Lbfgs(Box::new(optimizer)));
            }
            _ => return Err(Wrong::Missing),
        };
        Ok(Algorithm::Gradient(optimizer))
    }
}
